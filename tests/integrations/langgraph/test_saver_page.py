"""The page about checkpoints and memories is true."""

from tests.integrations.scripts import play_page


def test_the_page(tmp_path):
    play_page("langgraph", tmp_path, [], program=2)
