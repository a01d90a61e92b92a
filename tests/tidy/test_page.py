"""The files of the operator page: no markup out of strings, nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, ROOT
from tests.web_unit import api_types

WEB = PACKAGE / "_operator" / "web"
STATIC = WEB / "static"
SCRIPTS = sorted(STATIC.rglob("*.js"))
TEMPLATES = sorted((WEB / "templates").glob("*.html"))
COLUMNS = 200
FOLDERS = {"lib", "pages", "dialogs"}
SERVED = "{{ static }}/"

# What would make an element, a script or a style out of text. Text becomes text nodes (dom.js).
MARKUP = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|srcdoc|eval\(|new Function|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]|\.style\b|cssText)"
)
IMPORT = re.compile(r"""(?:^import\b[^;"']*|\bimport\s*\(\s*)["']([^"']+)["']""", re.MULTILINE)
LOADED = re.compile(r"""(?:src|href)="([^"]+)\"""")
INLINE = re.compile(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", re.IGNORECASE)


def by_name(path: Path) -> str:
    return path.relative_to(WEB).as_posix()


def test_there_is_a_page():
    assert SCRIPTS
    assert TEMPLATES


@pytest.mark.parametrize("path", SCRIPTS, ids=by_name)
def test_a_script_says_its_purpose_and_makes_no_markup(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0].startswith("//"), "it says first what it is for"
    code = [line for line in lines if not line.lstrip().startswith(("//", "*", "/*"))]
    assert not [line for line in code if MARKUP.search(line)]


@pytest.mark.parametrize("path", SCRIPTS, ids=by_name)
def test_a_script_has_its_types_checked(path: Path):
    text = path.read_text(encoding="utf-8")
    head = text[: len(text) - len(re.sub(r"^(//.*\n)+", "", text))]
    assert "// @ts-check" in head.splitlines()
    assert not re.search(r"@ts-(ignore|nocheck|expect-error)|eslint-disable", text)


def test_scripts_stand_in_folders_and_share_no_name():
    assert {path.parent.relative_to(STATIC).as_posix() for path in SCRIPTS} == FOLDERS
    names = [path.name for path in SCRIPTS]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.endswith("ing.js")], "a module is a noun"


def test_types_of_the_api_are_those_of_its_description():
    said = "python -m tests.web_unit.api_types"
    assert api_types.FILE.read_text(encoding="utf-8") == api_types.text(), said


def test_the_lock_file_names_no_server():
    locked = (ROOT / "tests" / "web_unit" / "package-lock.json").read_text(encoding="utf-8")
    assert "://" not in locked
    packages = json.loads(locked)["packages"]
    assert all("integrity" in about for name, about in packages.items() if name)


def test_versions_of_tools_are_exact():
    text = (ROOT / "tests" / "web_unit" / "package.json").read_text(encoding="utf-8")
    versions = json.loads(text)["devDependencies"].values()
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)


@pytest.mark.parametrize("path", SCRIPTS, ids=by_name)
def test_a_script_imports_what_is_there(path: Path):
    for name in IMPORT.findall(path.read_text(encoding="utf-8")):
        assert name.startswith(("./", "../")), name
        assert (path.parent / name).is_file(), name


def test_imports_are_found():
    text = 'import { a,\n  b } from "./a.js";\nimport "../lib/b.js";\nawait import("/c.js");'
    assert IMPORT.findall(text) == ["./a.js", "../lib/b.js", "/c.js"]


@pytest.mark.parametrize("path", TEMPLATES, ids=by_name)
def test_a_template_loads_what_is_there_and_has_nothing_inline(path: Path):
    text = path.read_text(encoding="utf-8")
    assert not INLINE.search(text)
    for name in LOADED.findall(text):
        assert name.startswith(("/", "#", SERVED)), name
        assert not name.startswith("/static"), "a path without a version is not served"
        if name.startswith(SERVED):
            assert (STATIC / name.removeprefix(SERVED)).is_file(), name


@pytest.mark.parametrize("path", sorted(STATIC.rglob("*.css")), ids=by_name)
def test_a_style_sheet_asks_for_nothing(path: Path):
    assert not re.search(r"url\(|@import|expression\(", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text", ["node.innerHTML = x", "node.style.width = 1", "eval(x)", 'setTimeout("x", 1)']
)
def test_markup_is_found(text: str):
    assert MARKUP.search(text)


@pytest.mark.parametrize("text", ['<p style="x">', '<a onclick="x">', "<script>x</script>"])
def test_what_stands_inline_is_found(text: str):
    assert INLINE.search(text)
    assert not INLINE.search('<script type="module" src="{{ static }}/x.js"></script>')
