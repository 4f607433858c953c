"""From images and methods to class counts on disk."""
