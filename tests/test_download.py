"""Downloads against a local server that drops connections, truncates, corrupts and refuses."""

import hashlib
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from adds.data import preflight
from adds.data.download import Expected, fetch, use_local
from adds.data.preflight import Download, NoDownloadError, check_downloads

CONTENT = bytes(range(256)) * 4000
SIZE = len(CONTENT)
EXPECTED = Expected(len(CONTENT), "sha256", hashlib.sha256(CONTENT).hexdigest())


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT in many ways; the path says which. Keeps what was asked for in the server's ``log``."""

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.log.append((self.path, asked))
        number = sum(path == self.path for path, _ in self.server.log)
        first = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        if self.path == "/forbidden":
            self.send_error(403)
            return
        if self.path == "/page":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"\n<!DOCTYPE html><title>Log in</title>")
            return
        if self.path == "/missing" or (self.path == "/flaky" and number < 3):
            self.send_error(404 if self.path == "/missing" else 503)
            return
        if self.path == "/no-ranges":
            first = 0
        body = CONTENT[first:]
        self.send_response(206 if first else 200)
        if self.path == "/corrupt":
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/drops" and number < 4:
            body = body[: len(CONTENT) // 5]  # then the connection closes in the middle
        if self.path in ("/truncated", "/no-ranges") and number < 2:
            body = body[: len(CONTENT) // 3]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.log = []
        server.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def download(server, *paths, target, **options):
    fetch([server.address + path for path in paths], target, EXPECTED, **{"pause": 0.01, "attempts": 6, **options})


@pytest.mark.parametrize("path", ["/whole", "/flaky", "/drops", "/truncated", "/no-ranges"])
def test_the_file_arrives_whole(server, tmp_path, path):
    target = tmp_path / "deep" / "file.pt"
    download(server, path, target=target)
    assert target.read_bytes() == CONTENT
    assert not target.with_name("file.pt.part").exists()


def test_a_broken_connection_is_continued_not_restarted(server, tmp_path):
    download(server, "/drops", target=tmp_path / "file.pt")
    asked = [value for _, value in server.log]
    fifth = len(CONTENT) // 5
    assert asked == [None, f"bytes={fifth}-", f"bytes={2 * fifth}-", f"bytes={3 * fifth}-"]


def test_a_later_call_continues_too(server, tmp_path):
    target = tmp_path / "file.pt"
    with pytest.raises(RuntimeError, match="could not be downloaded"):
        download(server, "/drops", target=target, attempts=1)
    assert not target.exists()
    download(server, "/drops", target=target)
    assert target.read_bytes() == CONTENT


def test_a_corrupt_file_never_gets_the_good_name(server, tmp_path):
    target = tmp_path / "file.pt"
    with pytest.raises(RuntimeError, match=r"sha256 .* instead of"):
        download(server, "/corrupt", target=target, attempts=2)
    assert list(tmp_path.iterdir()) == []
    download(server, "/corrupt", "/whole", target=target)  # a mirror helps
    assert target.read_bytes() == CONTENT


def test_a_part_of_another_file_is_noticed(server, tmp_path):
    (tmp_path / "file.pt.part").write_bytes(b"x" * 1000)
    download(server, "/whole", target=tmp_path / "file.pt")
    assert (tmp_path / "file.pt").read_bytes() == CONTENT


def test_no_access_says_what_to_do(server, tmp_path):
    with pytest.raises(NoDownloadError, match=r"403 .*Set dataset\.source"):
        download(server, "/forbidden", target=tmp_path / "file.tar", hint="Set dataset.source to your own copy.")
    assert len(server.log) == 1, "asking again would not help"
    with pytest.raises(RuntimeError, match="404"):
        download(server, "/missing", target=tmp_path / "file.tar", attempts=2)
    assert [path for path, _ in server.log].count("/missing") == 1, "asking again won't change it"
    with pytest.raises(ValueError, match="no address"):
        download(server, target=tmp_path / "file.tar")
    download(server, "/forbidden", "/whole", target=tmp_path / "file.tar")
    assert (tmp_path / "file.tar").read_bytes() == CONTENT, "a mirror helps"


def test_a_local_copy_is_used_where_it_is(tmp_path):
    source, target = tmp_path / "mine.pt", tmp_path / "resources/file.pt"
    source.write_bytes(CONTENT)
    use_local(source, target, EXPECTED)
    assert target.is_symlink()
    assert target.read_bytes() == CONTENT
    source.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"mine\.pt has 1,023,999 bytes instead of 1,024,000"):
        use_local(source, target, EXPECTED)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        use_local(tmp_path / "nowhere.pt", target, EXPECTED)


def test_an_unknown_size_is_the_servers(server, tmp_path):
    """With neither size nor checksum a broken connection is still noticed, and continued."""
    target = tmp_path / "file"
    fetch([server.address + "/drops"], target, Expected(), pause=0.01, attempts=6)
    assert target.read_bytes() == CONTENT
    assert Expected.from_settings({"urls": [], "size": None, "sha256": None}) == Expected(None, "md5", None)


def wanted(server, folder, *paths, size=SIZE, key="dataset.download"):
    urls = [server.address + path for path in paths]
    return Download(key, folder / "resources" / key / "file.tar", urls, size, "Set dataset.source to your own copy.")


@pytest.fixture
def room(monkeypatch):
    """A disk with so many bytes free."""

    def give(free):
        monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    return give


def test_too_little_space_is_told_before_any_byte(server, tmp_path, room):
    room(len(CONTENT) - 1)
    message = r"resources\S* has 1\.0 MB free: too little for .*dataset\.download \(1\.0 MB\).* Set dataset\.source"
    with pytest.raises(NoDownloadError, match=message):
        check_downloads([wanted(server, tmp_path, "/whole")])
    with pytest.raises(NoDownloadError, match=r"file\.tar \(1\.0 MB\)"):
        download(server, "/whole", target=tmp_path / "file.tar")
    assert server.log == []
    assert list(tmp_path.iterdir()) == []


def test_files_must_fit_all_together(server, tmp_path, room):
    both = [wanted(server, tmp_path, "/whole", key=key) for key in ("dataset.download", "diffusion.download")]
    room(2 * len(CONTENT) - 1)
    with pytest.raises(NoDownloadError, match=r"dataset\.download \(1\.0 MB\) and diffusion\.download \(1\.0 MB\)"):
        check_downloads(both)
    room(2 * len(CONTENT))
    check_downloads(both)


def test_what_has_arrived_needs_no_space(server, tmp_path, room):
    one = wanted(server, tmp_path, "/whole")
    one.part.parent.mkdir(parents=True)
    one.part.write_bytes(CONTENT[:-10])
    room(10)
    check_downloads([one])


def test_a_size_that_only_the_server_knows_counts_too(server, tmp_path, room):
    one = wanted(server, tmp_path, "/whole", size=None)
    room(len(CONTENT))
    check_downloads([one])
    room(len(CONTENT) - 1)
    with pytest.raises(NoDownloadError, match="too little"):
        check_downloads([one])


@pytest.mark.parametrize(
    ("path", "size", "message"),
    [
        ("/forbidden", len(CONTENT), "answers 403 Forbidden"),
        ("/missing", len(CONTENT), "answers 404 Not Found"),
        ("/page", len(CONTENT), "answers with a web page"),
        ("/whole", 1000, "has a file of 1,024,000 bytes instead of 1,000"),
    ],
)
def test_no_access_is_told_before_anything_is_written(server, tmp_path, path, size, message):
    with pytest.raises(NoDownloadError) as caught:
        check_downloads([wanted(server, tmp_path, path, size=size)])
    text = str(caught.value)
    assert text.startswith("dataset.download can't be downloaded: http")
    assert message in text
    assert text.endswith("Set dataset.source to your own copy.")
    assert "\n" not in text
    assert server.log == [(path, "bytes=0-511")]
    assert list(tmp_path.iterdir()) == []
    check_downloads([wanted(server, tmp_path, path, "/whole")])  # a mirror helps


NOWHERE = "http://127.0.0.1:9/file.tar"


def test_a_server_that_is_down_for_now_is_no_verdict(server, tmp_path, caplog):
    check_downloads([wanted(server, tmp_path, "/flaky")])
    nowhere = Download("dataset.download", tmp_path / "file.tar", [NOWHERE], 10, "")
    assert not caplog.text
    check_downloads([nowhere, nowhere, nowhere])
    assert caplog.text.count(f"{NOWHERE} can't be reached now") == 1
    assert "refused>), nor can 2 other files; the download will try" in caplog.text
    assert "run `snakemake fetch` on one that has" in caplog.text
    caplog.clear()
    check_downloads([replace(wanted(server, tmp_path, "/whole"), hint="ask nobody"), replace(nowhere, hint="ask me")])
    assert "ask me" in caplog.text
    assert "ask nobody" not in caplog.text, "that one is reachable"


def test_without_a_network_the_download_says_what_to_do(server, tmp_path):
    with pytest.raises(RuntimeError, match=r"could not be downloaded.*run `snakemake fetch` on one that has"):
        fetch([NOWHERE], tmp_path / "file.tar", Expected(10, "md5", None), attempts=2, pause=0)
    elsewhere = [f"{NOWHERE}{place}" for place in range(5)]
    fetch([*elsewhere, f"{server.address}/whole"], tmp_path / "whole.tar", EXPECTED, pause=0)
    assert (tmp_path / "whole.tar").exists(), "of many addresses every one is tried"
    with pytest.raises(RuntimeError) as caught:
        download(server, "/drops", target=tmp_path / "other.tar", attempts=1)
    assert "snakemake fetch" not in str(caught.value), "a server that answered"
