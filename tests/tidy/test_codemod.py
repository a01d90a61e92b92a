"""A rename reaches what the rule means, and nothing that only looks like it."""

import pytest

from tests.tidy.codemod import Rules, rename_markdown, rename_python, rename_words

NAMES = Rules(
    names={"holdfast.wait": "holdfast.wait_for_signal", "holdfast.now": "holdfast.context.now"}
)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("import holdfast\nholdfast.wait('x')", "import holdfast\nholdfast.wait_for_signal('x')"),
        ("import holdfast as h\nh.now()", "import holdfast as h\nh.context.now()"),
        (
            "from holdfast import now, wait\nwait(now())",
            "from holdfast.context import now\nfrom holdfast import wait_for_signal\nwait_for_signal(now())",
        ),
        ("from holdfast import wait as w\nw(1)", "from holdfast import wait_for_signal as w\nw(1)"),
        (
            "from holdfast import wait\ndef f(wait):\n    wait()",
            "from holdfast import wait_for_signal\ndef f(wait):\n    wait()",
        ),
        (
            "from holdfast import wait\ndef f():\n    wait = 1\n    return wait",
            "from holdfast import wait_for_signal\ndef f():\n    wait = 1\n    return wait",
        ),
        (
            'SCRIPT = """\nimport holdfast\nholdfast.wait("x")\n"""',
            'SCRIPT = """\nimport holdfast\nholdfast.wait_for_signal("x")\n"""',
        ),
        (
            'PART = """\n@flow\ndef f():\n    wait("x")\n"""',
            'PART = """\n@flow\ndef f():\n    wait_for_signal("x")\n"""',
        ),
        (
            '"""Call `holdfast.wait(name)`; wait."""',
            '"""Call `holdfast.wait_for_signal(name)`; wait."""',
        ),
    ],
)
def test_a_name_is_followed_through_imports(was, becomes):
    assert rename_python(was, NAMES) == becomes


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.wait(x)",
        "from asyncio import wait\nwait(x)",
        "wait = 3\nwait",
        "thing.wait()",
        "f(wait=3)",
    ],
)
def test_another_thing_of_that_name_is_left_alone(text):
    assert rename_python(text, NAMES) == text


RULES = Rules(
    attributes=[{"was": "list", "becomes": "runs", "on": ["store", "*_store"]}],
    keywords=[{"was": "limit", "becomes": "max_turns", "of": ["turns"]}],
    values=[{"was": "ask", "becomes": "hold", "keywords": ["on_doubt"]}],
    words={"failed_on": "not_done_on"},
)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("self.my_store.list(limit=3)", "self.my_store.runs(limit=3)"),
        ("html.list", "html.list"),
        ("aio.turns(x, limit=3)", "aio.turns(x, max_turns=3)"),
        ("runs(limit=3)", "runs(limit=3)"),
        ("effect(on_doubt='ask')", 'effect(on_doubt="hold")'),
        ("ask('ask')", "ask('ask')"),
        ("effect(failed_on=E, é=1)", "effect(not_done_on=E, é=1)"),
        ("é = {'failed_on': store.list()}", "é = {'not_done_on': store.runs()}"),
    ],
)
def test_attributes_keywords_values_and_words(was, becomes):
    assert rename_python(was, RULES) == becomes


def test_a_page_is_renamed_in_its_code_only():
    page = "Wait for `store.list()`, list it.\n\n```python\nstore.list()\n```\n\n    store.list()\n"
    assert rename_markdown(page, RULES) == (
        "Wait for `store.runs()`, list it.\n\n```python\nstore.runs()\n```\n\n    store.list()\n"
    )


def test_a_block_knows_the_imports_of_the_page():
    page = "```python\nfrom holdfast import wait\n```\n\n```python\nwait('x')\n```\n"
    assert "wait_for_signal('x')" in rename_markdown(page, NAMES)


def test_a_module_is_renamed_in_imports_and_paths():
    rules = Rules(modules={"holdfast._runtime.gap": "holdfast._runtime.drift"})
    assert rename_python("import holdfast._runtime.gap", rules) == "import holdfast._runtime.drift"
    assert rename_python("from holdfast._runtime import gap", rules) == (
        "from holdfast._runtime import drift as gap"
    )
    assert rename_markdown("see `holdfast/_runtime/gap.py`", rules) == (
        "see `holdfast/_runtime/drift.py`"
    )


def test_a_word_is_whole():
    assert rename_words("failed_on, failed_once", RULES) == "not_done_on, failed_once"


def test_a_definition_is_renamed_where_it_stands():
    known = {"wait": "holdfast.wait", "Box": "holdfast.Box"}
    rules = Rules(
        names={"holdfast.wait": "holdfast.wait_for_signal", "holdfast.Box": "holdfast.Case"}
    )
    text = "class Box:\n    def wait(self): ...\n\nasync def wait():\n    return Box(), wait\n"
    assert rename_python(text, rules, known) == (
        "class Case:\n    def wait(self): ...\n\nasync def wait_for_signal():\n"
        "    return Case(), wait_for_signal\n"
    )


def test_a_module_that_is_imported_whole_is_followed():
    rules = Rules(names={"holdfast._runtime.timing.wait": "holdfast._runtime.timing.wait_for"})
    text = "from holdfast._runtime import timing\ntiming.wait()\n"
    assert rename_python(text, rules) == text.replace("timing.wait", "timing.wait_for")


def test_the_list_of_public_names_is_renamed():
    text = 'from holdfast import wait\n\n__all__ = ["other", "wait"]\n'
    assert rename_python(text, NAMES) == (
        'from holdfast import wait_for_signal\n\n__all__ = ["other", "wait_for_signal"]\n'
    )


def test_the_alias_of_an_export_is_renamed():
    known = {"wait": "holdfast.aio.wait"}
    rules = Rules(names={"holdfast.aio.wait": "holdfast.aio.wait_for"})
    text = 'from holdfast._waits import aio_wait as wait\n\n__all__ = ["wait"]\n'
    assert rename_python(text, rules, known) == text.replace("as wait", "as wait_for").replace(
        '"wait"', '"wait_for"'
    )


HERE = Rules(
    attributes=[{"was": "list", "becomes": "runs", "on": ["self"], "in": ["here.py"]}],
    keywords=[{"was": "limit", "becomes": "max_turns", "of": ["turns"], "in": ["here.py"]}],
    definitions=[{"was": "list", "becomes": "runs", "in": ["here.py"]}],
    values=[{"was": "ask", "becomes": "hold", "keywords": ["on_doubt", "on_drift"]}],
    spans={"use": "resource"},
)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("def turns(x, limit=limit):\n    limit", "def turns(x, max_turns=limit):\n    max_turns"),
        (
            "def turns(limit):\n    def f(limit):\n        limit",
            "def turns(max_turns):\n    def f(limit):\n        limit",
        ),
        (
            "class A:\n    list: int\n    def list(self):\n        self.list",
            "class A:\n    runs: int\n    def runs(self):\n        self.runs",
        ),
        ("def f(on_doubt='ask'): ...", 'def f(on_doubt="hold"): ...'),
        ("flow(on_drift={'ask': 'ask'})", "flow(on_drift={'ask': \"hold\"})"),
        (
            '"""`use(…)`, `use`, `@use(a=…)`, `x.use`."""',
            '"""`resource(…)`, `resource`, `@resource(a=…)`, `x.use`."""',
        ),
    ],
)
def test_what_a_file_defines(was, becomes):
    HERE.path = "here.py"
    assert rename_python(was, HERE) == becomes
    HERE.path = "elsewhere.py"
    if "def turns" in was or "class" in was:
        assert rename_python(was, HERE) == was


def test_calls_are_told_apart_by_their_shape():
    rule = {"was": "list", "becomes": "runs", "on": ["store"], "keywords_only": True}
    rules = Rules(attributes=[rule])
    text = "store.list(limit=3), store.list(query), store.list"
    assert rename_python(text, rules) == "store.runs(limit=3), store.list(query), store.list"
