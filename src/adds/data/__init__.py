"""Images: from a list and a source to pixels and their checksums."""
