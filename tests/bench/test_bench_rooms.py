"""``python -m bench.rooms``: import cycles, and calls from file to file."""

from __future__ import annotations

import airnp
from bench import rooms


def test_the_table_has_seven_lines(capsys):
    rooms.main()
    assert len(capsys.readouterr().out.strip().splitlines()) == 2 + 7


def test_imports_inside_functions_and_relative_ones_count(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "PACKAGE", tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text("def f():\n    from ..b import g\n")
    (tmp_path / "b.py").write_text("from airnp import c\nimport airnp.a.one\n")
    (tmp_path / "c.py").write_text("from airnp.c import itself\n")
    assert rooms.package_imports() == {"a": {"b"}, "b": {"a", "c"}, "c": set()}
    assert rooms.packages_in_cycles(rooms.package_imports()) == {"a", "b"}


def test_only_calls_to_another_file_of_airnp_count():
    assert rooms.count_changes(lambda: sum(range(3))) == 0
    assert rooms.count_changes(lambda: airnp.fit([[1.0, 2.0], [3.0, None]], max_iter=1, stop=None)) > 10
