"""Data sets: find, check and read their files; ``airnp data``; and the real files if they are here."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import numpy as np
import pooch
import pytest
import requests
from PIL import Image
from scipy import sparse

import airnp
from airnp import datasets
from airnp.commands import main as cli
from airnp.datasets import catalogue, loaders
from airnp.datasets import download as files

# --- fixtures ---


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    """Hide the user's folder and cache from every test."""
    monkeypatch.delenv("AIRNP_DATA", raising=False)
    monkeypatch.setenv("AIRNP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def given(monkeypatch, tmp_path):
    """An empty folder that ``AIRNP_DATA`` names."""
    folder = tmp_path / "given"
    folder.mkdir()
    monkeypatch.setenv("AIRNP_DATA", str(folder))
    return folder


@pytest.fixture
def real(monkeypatch, data_directory):
    """The paper's own files, or a skip that says why."""
    monkeypatch.setenv("AIRNP_DATA", str(data_directory))


class Server:
    """A local web server: what is in ``folder`` can be downloaded from ``url``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *words) -> None:
                asked.append(self.path.removeprefix("/"))

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=partial(self._http.serve_forever, poll_interval=0.01))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server(tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "public"
    folder.mkdir()
    running = Server(folder)
    yield running
    running.close()


@pytest.fixture
def known(monkeypatch):
    """Change the content that the catalogue knows of a file, and its addresses."""

    def change(name, content, *urls):
        file = replace(
            catalogue.FILES[name], sha256=hashlib.sha256(content).hexdigest(), size=len(content), urls=urls
        )
        monkeypatch.setitem(catalogue.FILES, name, file)
        return file

    return change


@pytest.fixture
def provide(known, given):
    """Put a synthetic file into ``AIRNP_DATA`` in the place of a real one."""

    def put(name, write):
        write(given / name)
        known(name, (given / name).read_bytes())

    return put


@pytest.fixture
def without(monkeypatch):
    """Make a package impossible to import."""
    return lambda package: monkeypatch.setitem(sys.modules, package, None)


def main(*words):
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as left:
        return left.code


# --- the catalogue ---


def test_every_entry_names_files_of_the_catalogue_and_every_file_is_needed():
    needed = [name for entry in catalogue.ENTRIES.values() for name in entry.files]
    assert sorted(needed) == sorted(catalogue.FILES)
    assert set(datasets.names()) == set(catalogue.ENTRIES) - {"texture_mask"}


@pytest.mark.parametrize("file", catalogue.FILES.values(), ids=lambda file: file.name)
def test_a_file_has_a_checksum_and_addresses_in_the_named_homes(file):
    assert len(file.sha256) == 64
    assert int(file.sha256, 16)
    homes = ("lizhemin15/AIR-Net", "fmonti/mgcnn", "stephenliu0423/PyDTI")
    assert file.urls[0].startswith(tuple(f"https://raw.githubusercontent.com/{home}/" for home in homes))


# --- finding files ---


def test_a_file_in_the_given_folder_is_used_as_it_is_without_pooch(known, given, cache, without, monkeypatch):
    monkeypatch.delenv("AIRNP_CACHE")
    without("pooch")
    (given / "barbara.jpg").write_bytes(b"right")
    file = known("barbara.jpg", b"right")
    assert files.where(file) == "AIRNP_DATA"
    assert files.locate(file) == given / "barbara.jpg"
    assert not cache.exists()


def test_a_wrong_file_in_the_given_folder_is_refused(known, given):
    (given / "barbara.jpg").write_bytes(b"wrong")
    file = known("barbara.jpg", b"right")
    assert files.where(file) == "wrong file"
    with pytest.raises(datasets.ChecksumError) as caught:
        files.locate(file)
    message = str(caught.value)
    assert str(given / "barbara.jpg") in message
    assert file.sha256 in message
    assert hashlib.sha256(b"wrong").hexdigest() in message
    assert "Replace it, or take it away" in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_given_folder_that_is_none_is_a_mistake(monkeypatch, tmp_path):
    monkeypatch.setenv("AIRNP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"AIRNP_DATA names .*nowhere, which is not a folder"):
        datasets.barbara()


def test_what_the_given_folder_lacks_comes_from_the_cache(known, given, cache):
    cache.mkdir()
    (cache / "barbara.jpg").write_bytes(b"right")
    file = known("barbara.jpg", b"right")
    assert files.where(file) == "cache"
    assert files.locate(file) == cache / "barbara.jpg"


def test_the_cache_is_the_usual_one_unless_named(monkeypatch, tmp_path):
    assert files.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("AIRNP_CACHE")
    assert files.cache_folder() == Path(pooch.os_cache("airnp"))


def test_a_missing_file_is_downloaded_once(known, server, cache):
    (server.folder / "Barbara.jpg").write_bytes(b"right")
    file = known("barbara.jpg", b"right", f"{server.url}/Barbara.jpg")
    assert files.where(file) == "not here"
    for _ in range(2):
        assert files.locate(file) == cache / "barbara.jpg"
    assert (cache / "barbara.jpg").read_bytes() == b"right"
    assert server.asked == ["Barbara.jpg"]
    assert files.where(file) == "cache"


def test_a_damaged_file_in_the_cache_is_replaced(known, server, cache):
    cache.mkdir()
    (cache / "barbara.jpg").write_bytes(b"damaged")
    (server.folder / "barbara.jpg").write_bytes(b"right")
    file = known("barbara.jpg", b"right", f"{server.url}/barbara.jpg")
    assert files.where(file) == "wrong file"
    assert files.locate(file).read_bytes() == b"right"


def test_addresses_are_tried_in_turn(known, server):
    (server.folder / "changed").write_bytes(b"wrong")
    (server.folder / "mirror").write_bytes(b"right")
    urls = [f"{server.url}/{name}" for name in ("gone", "changed", "mirror", "never-asked")]
    assert files.locate(known("barbara.jpg", b"right", *urls)).read_bytes() == b"right"
    assert [asked for asked in server.asked if "code" not in asked] == ["gone", "gone", "changed", "mirror"]


def test_a_wrong_download_is_refused_and_leaves_nothing(known, server, cache):
    (server.folder / "barbara.jpg").write_bytes(b"wrong")
    file = known("barbara.jpg", b"right", f"{server.url}/gone.jpg", f"{server.url}/barbara.jpg")
    with pytest.raises(datasets.ChecksumError) as caught:
        files.locate(file)
    message = str(caught.value)
    assert message.startswith("barbara.jpg: what was downloaded is not the file that airnp knows")
    assert f"expected SHA-256 {file.sha256}" in message
    assert f"{server.url}/gone.jpg: the server answers 404" in message
    assert f"{server.url}/barbara.jpg: found SHA-256 {hashlib.sha256(b'wrong').hexdigest()}" in message
    assert "AIRNP_DATA" in message
    assert list(cache.iterdir()) == []


def test_without_a_connection_the_message_says_what_to_do(known, server, cache):
    server.close()
    file = known("barbara.jpg", b"right", f"{server.url}/barbara.jpg")
    with pytest.raises(datasets.DownloadError) as caught:
        files.locate(file)
    problem, tried, advice = str(caught.value).splitlines()
    assert problem == "barbara.jpg is not here and could not be downloaded:"
    assert tried == f"  {server.url}/barbara.jpg: no connection"
    assert "let AIRNP_DATA name that folder" in advice
    assert "airnp data fetch" in advice


def test_a_server_that_does_not_answer_is_reported(known, monkeypatch):
    def silent(*given, **named):
        raise requests.exceptions.ReadTimeout("HTTPConnectionPool(...): Read timed out. (read timeout=60)")

    monkeypatch.setattr(requests, "get", silent)
    with pytest.raises(datasets.DownloadError, match=r"http://far/away: the server does not answer"):
        files.locate(known("barbara.jpg", b"right", "http://far/away"))


def test_a_cache_that_cannot_be_written_is_reported(known, server, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRNP_CACHE", str(tmp_path / "file" / "cache"))
    (server.folder / "barbara.jpg").write_bytes(b"right")
    with pytest.raises(datasets.DownloadError, match="Not a directory"):
        files.locate(known("barbara.jpg", b"right", f"{server.url}/barbara.jpg"))


@pytest.mark.parametrize(
    ("package", "name", "message"),
    [
        ("PIL", "barbara.jpg", "reading pictures needs Pillow"),
        ("h5py", "synthetic_netflix.mat", "reading MATLAB 7.3 files needs h5py"),
        ("pooch", None, "finding and downloading data needs pooch"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package, name, message, known, given, without, monkeypatch
):
    monkeypatch.delenv("AIRNP_CACHE")
    if name is not None:
        (given / name).write_bytes(b"content")
        known(name, b"content")
    without(package)
    with pytest.raises(ImportError, match=message) as caught:
        datasets.load("syn_netflix" if package == "h5py" else "barbara")
    assert 'pip install "airnp[data]"' in str(caught.value)
    assert type(caught.value) is ImportError  # the command line takes a ModuleNotFoundError for a bug


# --- reading files ---


RANDOM = np.random.default_rng(0).integers(0, 256, (9, 12), dtype=np.uint8)
HALVES = (RANDOM[0:8:2] + RANDOM[1:8:2].astype(float)) / 2
COLOURS = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], dtype=np.uint8)


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        pytest.param(RANDOM, RANDOM, id="of the right size"),
        # The centre of every third pixel is a pixel, so no value changes; smoothing would change them.
        pytest.param(RANDOM, RANDOM[1::3, 1::3], id="a third"),
        pytest.param(RANDOM[:8], np.floor((HALVES[:, ::2] + HALVES[:, 1::2]) / 2 + 0.5), id="a half"),
        pytest.param(np.array([[0, 200]], np.uint8), np.array([[0, 50, 150, 200]] * 2), id="enlarged"),
        pytest.param(COLOURS, np.array([[76, 150, 29, 255]]), id="in colour"),
    ],
)
def test_a_picture_is_resized_between_the_nearest_pixels_and_made_grey(pixels, expected, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(loaders.read_picture(tmp_path / "a.png", expected.shape), expected / 255)


def write_matlab(path, **variables):
    """Write variables as MATLAB 7.3 does: transposed, and sparse ones by columns."""
    with h5py.File(path, "w") as file:
        for name, value in variables.items():
            if not sparse.issparse(value):
                file[name] = np.asarray(value, dtype=np.float64).T
                continue
            by_columns = sparse.csc_array(value)
            group = file.create_group(name)
            group.attrs["MATLAB_sparse"] = np.uint64(value.shape[0])
            group["jc"] = by_columns.indptr.astype(np.uint64)
            if by_columns.nnz:
                group["data"] = by_columns.data
                group["ir"] = by_columns.indices.astype(np.uint64)


def test_matlab_variables_are_as_in_matlab(tmp_path):
    dense = np.arange(6.0).reshape(2, 3)
    graph = sparse.csr_array(np.array([[0.0, 5.0, 0.0], [1.0, 0.0, 2.0]]))
    write_matlab(tmp_path / "a.mat", dense=dense, graph=graph, empty=sparse.csr_array((4, 3)))
    read, sparse_read, empty = loaders.read_matlab(tmp_path / "a.mat", ("dense", "graph", "empty"))
    np.testing.assert_array_equal(read, dense)
    np.testing.assert_array_equal(sparse_read.toarray(), graph.toarray())
    assert empty.shape == (4, 3)
    assert empty.nnz == 0


def write_table(path, values, rows, columns):
    lines = ["\t".join(["", *columns])]
    lines += ["\t".join([row, *map(str, numbers)]) for row, numbers in zip(rows, values, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def test_a_table_keeps_its_labels(tmp_path):
    write_table(tmp_path / "a.txt", [[1.0, 0.5, 2.0], [3.0, 4.0, 5e-3]], ["r1", "r2"], ["c1", "c2", "c3"])
    table = loaders.read_table(tmp_path / "a.txt")
    np.testing.assert_array_equal(table.values, [[1.0, 0.5, 2.0], [3.0, 4.0, 5e-3]])
    assert table.row_labels == ("r1", "r2")
    assert table.column_labels == ("c1", "c2", "c3")


# --- the loaders, on made-up files ---


def test_a_picture_as_a_data_set(provide):
    colours = np.random.default_rng(0).integers(0, 256, (300, 250, 3), dtype=np.uint8)
    provide("baboon.bmp", lambda path: Image.fromarray(colours).save(path))
    data = datasets.baboon()
    assert data.matrix.shape == (240, 240)
    assert data.matrix.dtype == np.float64
    assert data.matrix.min() >= 0
    assert data.matrix.max() <= 1
    assert data.mask is data.test_mask is data.row_graph is data.column_graph is data.row_labels is None
    assert "AIR-Net" in data.source
    assert data.licence


def test_the_texture_mask_is_observed_where_it_is_white(provide):
    grey = np.full((240, 240), 255, dtype=np.uint8)
    grey[3, 5:9], grey[10, 10] = 0, 254
    provide("texture_mask.png", lambda path: Image.fromarray(grey).convert("RGBA").save(path))
    np.testing.assert_array_equal(datasets.texture_mask(), grey == 255)


def ratings(shape):
    """Return ratings from 1 to 5 with a split, and graphs of the two sides."""
    rng = np.random.default_rng(0)
    draw = rng.random(shape)
    graphs = [sparse.csr_array(np.maximum(rng.random((k, k)) - 0.9, 0)) for k in shape]
    return (
        rng.integers(1, 6, shape).astype(float),
        draw < 0.2,
        (draw >= 0.2) & (draw < 0.3),
        *[graph + graph.T for graph in graphs],
    )


@pytest.mark.parametrize(
    ("name", "file", "shape", "graphs"),
    [
        ("syn_netflix", "synthetic_netflix.mat", (150, 200), ("Wrow", "Wcol")),
        ("movielens_100k", "movielens_100k_split1.mat", (943, 1682), ("W_users", "W_movies")),
    ],
)
def test_ratings_come_with_their_split_and_graphs(name, file, shape, graphs, provide):
    matrix, train, test, users, items = ratings(shape)
    if name == "movielens_100k":  # the file has 0 for a rating that does not exist
        known = train | test
        matrix, expected = matrix * known, np.where(known, matrix, np.nan)
    else:
        expected = matrix
    variables = {
        "M": matrix,
        "Otraining": train,
        "Otest": test,
        **dict(zip(graphs, (users, items), strict=True)),
    }
    provide(file, lambda path: write_matlab(path, **variables))
    data = datasets.load(name)
    np.testing.assert_array_equal(data.matrix, expected)
    np.testing.assert_array_equal(data.mask, train)
    np.testing.assert_array_equal(data.test_mask, test)
    assert data.mask.dtype == data.test_mask.dtype == bool
    assert (data.row_graph != users).nnz == (data.column_graph != items).nnz == 0
    shares = f"{train.mean():.1%} for training, {test.mean():.1%} for testing"
    size = "×".join(map(str, shape))
    assert repr(data) == f"<Dataset {name}: {size}, values from 1 to 5, {shares}, row and column graphs>"


def test_the_terms_of_movielens_are_named():
    assert "no redistribution" in catalogue.ENTRIES["movielens_100k"].licence


def write_interactions(provide, prefix, m, n, targets=None):
    rng = np.random.default_rng(0)
    acting = rng.integers(0, 2, (n, m))  # a row for each target, as in the files
    drugs, proteins = [f"D{i:05}" for i in range(m)], [f"hsa{j}" for j in range(n)]
    similar = [rng.random((k, k)) for k in (m, n)]
    provide(f"{prefix}_admat_dgc.txt", lambda path: write_table(path, acting, targets or proteins, drugs))
    provide(f"{prefix}_simmat_dc.txt", lambda path: write_table(path, similar[0], drugs, drugs))
    provide(f"{prefix}_simmat_dg.txt", lambda path: write_table(path, similar[1], proteins, proteins))
    return acting, similar, drugs, proteins


@pytest.mark.parametrize(
    ("name", "prefix", "shape"), [("dti_ic", "ic", (210, 204)), ("dti_gpcr", "gpcr", (223, 95))]
)
def test_drugs_are_rows_and_targets_are_columns(name, prefix, shape, provide):
    acting, similar, drugs, proteins = write_interactions(provide, prefix, *shape)
    data = datasets.load(name)
    assert data.matrix.shape == shape
    np.testing.assert_array_equal(data.matrix, acting.T)
    assert data.row_labels == tuple(drugs)
    assert data.column_labels == tuple(proteins)
    for graph, given in zip((data.row_graph, data.column_graph), similar, strict=True):
        np.testing.assert_allclose(graph, (given + given.T) / 2)
        np.testing.assert_array_equal(graph, graph.T)
    assert repr(data).endswith("row and column graphs, row and column labels>")


def test_tables_that_do_not_belong_together_are_refused(provide):
    write_interactions(provide, "gpcr", 223, 95, targets=[f"other{j}" for j in range(95)])
    with pytest.raises(ValueError, match="dti_gpcr: the tables do not name the same drugs and targets"):
        datasets.dti_gpcr()


def test_a_matrix_of_another_shape_is_refused(provide):
    write_interactions(provide, "ic", 4, 3)
    with pytest.raises(ValueError, match=r"dti_ic: expected a matrix of shape \(210, 204\), got \(4, 3\)"):
        datasets.dti_ic()


def test_a_data_set_is_frozen_and_shows_what_it_has():
    matrix = np.array([[0.0, 1.0], [np.nan, 4.0]])
    data = datasets.Dataset("tiny", matrix, source="here", licence="none", row_graph=np.eye(2))
    assert repr(data) == "<Dataset tiny: 2×2, values from 0 to 4, row graph>"
    assert data == data  # by identity: arrays have no single answer
    with pytest.raises(FrozenInstanceError):
        data.name = "other"


# --- airnp data ---


def test_list_shows_what_is_where(provide, known, given, cache, capsys):
    provide("barbara.jpg", lambda path: path.write_bytes(b"right"))
    (given / "baboon.bmp").write_bytes(b"wrong")
    cache.mkdir()
    (cache / "cameraman.jpg").write_bytes(b"right")
    known("cameraman.jpg", b"right")
    for place, table in [(given, "admat_dgc"), (cache, "simmat_dc"), (cache, "simmat_dg")]:
        (place / f"ic_{table}.txt").write_bytes(b"right")
        known(f"ic_{table}.txt", b"right")
    (cache / "gpcr_admat_dgc.txt").write_bytes(b"right")
    known("gpcr_admat_dgc.txt", b"right")

    assert main("data", "list") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "shape", "content", "where"]
    shown = {line.split()[0]: line for line in lines}
    assert list(shown) == list(catalogue.ENTRIES)
    where = head.index("where")
    assert {name: line[where:] for name, line in shown.items()} == {
        "barbara": "AIRNP_DATA",
        "baboon": "wrong file",
        "cameraman": "cache",
        "texture_mask": "not here",
        "syn_netflix": "not here",
        "dti_ic": "AIRNP_DATA and cache",
        "dti_gpcr": "not here",
        "movielens_100k": "not here",
    }
    assert "943×1682" in shown["movielens_100k"]


@pytest.fixture
def public(server, known):
    """All files of the catalogue, made up, on the local server."""
    for name in catalogue.FILES:
        (server.folder / name).write_bytes(name.encode())
        known(name, name.encode(), f"{server.url}/{name}")
    return server


def test_fetch_gets_everything(public, cache, capsys):
    assert main("data", "fetch") == 0
    shown = capsys.readouterr().out.splitlines()
    assert sorted(path.name for path in cache.iterdir()) == sorted(catalogue.FILES)
    assert len(shown) == len(catalogue.FILES) == 12
    assert shown[0] == f"[1/12] barbara: {cache / 'barbara.jpg'}"
    assert shown[-1].startswith("[12/12] movielens_100k: ")


def test_fetch_gets_what_is_named_once(public, cache):
    assert main("data", "fetch", "dti_ic", "cameraman", "dti_ic") == 0
    assert main("data", "fetch", "cameraman") == 0
    wanted = ["ic_admat_dgc.txt", "ic_simmat_dc.txt", "ic_simmat_dg.txt", "cameraman.jpg"]
    assert public.asked == wanted
    assert sorted(path.name for path in cache.iterdir()) == sorted(wanted)


def test_fetch_shows_a_bar_on_a_terminal(public, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main("data", "fetch", "barbara") == 0
    assert "100%" in capsys.readouterr().err


def test_fetch_goes_on_after_a_failure_and_exits_with_1(public, cache, capsys):
    (public.folder / "barbara.jpg").write_bytes(b"wrong")
    (public.folder / "baboon.bmp").unlink()
    assert main("data", "fetch", "barbara", "baboon", "cameraman") == 1
    shown = capsys.readouterr()
    assert shown.out == f"[3/3] cameraman: {cache / 'cameraman.jpg'}\n"
    assert "airnp data fetch: barbara.jpg: what was downloaded is not the file" in shown.err
    assert "airnp data fetch: baboon.bmp is not here and could not be downloaded" in shown.err
    assert "airnp data fetch: 2 of 3 files could not be had" in shown.err
    assert shown.err.count("by hand") == 1
    assert "Traceback" not in shown.err


def test_fetch_of_something_unknown_is_a_mistake(capsys):
    assert main("data", "fetch", "lena") == 2
    assert "there is no 'lena'; there are barbara, baboon" in capsys.readouterr().err


def test_a_wrong_folder_is_a_mistake_and_no_traceback(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("AIRNP_DATA", str(tmp_path / "nowhere"))
    for action in ("list", "fetch"):
        assert main("data", action) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("airnp data: AIRNP_DATA names ")
        assert shown.err.count("\n") == 1


def test_fetch_without_pooch_names_the_extra(monkeypatch, without, capsys):
    monkeypatch.delenv("AIRNP_CACHE")
    without("pooch")
    assert main("data", "fetch") == 2
    assert capsys.readouterr().err == (
        'airnp data: finding and downloading data needs pooch: pip install "airnp[data]"\n'
    )


def test_path_prints_the_cache_and_mentions_the_given_folder(cache, request, capsys):
    assert main("data", "path") == 0
    assert capsys.readouterr() == (f"{cache}\n", "")
    given = request.getfixturevalue("given")
    assert main("data", "path") == 0
    assert capsys.readouterr() == (f"{cache}\n", f"AIRNP_DATA names {given}, where airnp looks first\n")


# --- laziness ---


def test_importing_airnp_brings_none_of_it_and_importing_datasets_no_optional_package():
    code = (
        "import sys, airnp\n"
        "assert not any(name.startswith('airnp.datasets') for name in sys.modules), 'datasets'\n"
        "before = set(sys.modules)\n"
        "import airnp.datasets, airnp.commands.main\n"
        "brought = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert not brought & {'pooch', 'requests', 'h5py', 'PIL', 'pandas', 'scipy', 'tqdm'}, brought\n"
    )
    root = str(Path(airnp.__file__).resolve().parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=root)


# --- the real files ---


def test_the_real_files_have_the_known_size_and_checksum(real, data_directory):
    for file in catalogue.FILES.values():
        assert (data_directory / file.name).stat().st_size == file.size
        assert files.locate(file) == data_directory / file.name


@pytest.mark.parametrize("name", datasets.names())
def test_real_data_have_the_shape_of_the_paper(name, real, data_directory):
    data = datasets.load(name)
    assert data.matrix.shape == catalogue.ENTRIES[name].shape
    assert data.matrix.dtype == np.float64
    for axis, graph in (("rows", data.row_graph), ("columns", data.column_graph)):
        if graph is not None:
            airnp.FixedLaplacian(graph, axis=axis)  # checks that it is an adjacency
            assert graph.shape == (data.matrix.shape[axis == "columns"],) * 2
    if name in ("barbara", "baboon", "cameraman"):
        assert 0 <= data.matrix.min() < 0.1
        assert 0.7 < data.matrix.max() <= 1
    if name in ("barbara", "cameraman"):  # of the right size already
        with Image.open(data_directory / f"{name}.jpg") as picture:
            expected = np.asarray(picture.convert("L")) / 255
        np.testing.assert_allclose(data.matrix, expected, atol=1 / 255 + 1e-12)


def test_real_baboon_is_as_rough_as_in_the_paper(real):
    """Smoothed while it was resized, neighbours would differ by 0.059 and 0.053."""
    matrix = datasets.baboon().matrix
    assert np.abs(np.diff(matrix, axis=0)).mean() == pytest.approx(0.0702, abs=2e-4)
    assert np.abs(np.diff(matrix, axis=1)).mean() == pytest.approx(0.0638, abs=2e-4)


def test_real_syn_netflix_has_groups_that_its_graphs_know(real):
    data = datasets.syn_netflix()
    assert len(np.unique(data.matrix, axis=0)) == 15
    assert len(np.unique(data.matrix, axis=1).T) == 12
    assert data.mask.sum() == data.test_mask.sum() == 4500
    assert not (data.mask & data.test_mask).any()
    for graph, lines in ((data.row_graph, data.matrix), (data.column_graph, data.matrix.T)):
        distance = ((lines[:, np.newaxis] - lines) ** 2).sum(axis=-1)
        linked = graph.toarray()
        assert (linked * distance).sum() / linked.sum() < 0.01 * distance.mean()


def test_real_movielens_has_the_given_split(real):
    data = datasets.movielens_100k()
    assert data.mask.sum() == 80_000
    assert data.test_mask.sum() == 20_000
    np.testing.assert_array_equal(np.isfinite(data.matrix), data.mask | data.test_mask)
    assert set(np.unique(data.matrix[np.isfinite(data.matrix)])) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("name", "interactions", "drug", "target"),
    [("dti_ic", 1476, "D00035", "hsa10008"), ("dti_gpcr", 635, "D00049", "hsa10161")],
)
def test_real_interactions(name, interactions, drug, target, real):
    data = datasets.load(name)
    assert set(np.unique(data.matrix)) == {0, 1}
    assert data.matrix.sum() == interactions
    assert data.row_labels[0] == drug
    assert data.column_labels[0] == target
    assert (len(data.row_labels), len(data.column_labels)) == data.matrix.shape


def test_no_data_file_is_part_of_the_repository():
    root = Path(airnp.__file__).resolve().parents[1]
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout: there is no list of files to look at")
    assert not {Path(line).name for line in tracked.stdout.splitlines()} & set(catalogue.FILES)
