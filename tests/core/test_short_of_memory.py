"""Values that are read where there is little memory: Python says so, and the process lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast._engine.values.chunks import Values
from holdfast._stores.readable_values import Readable
from holdfast.errors import RunDeleted, StoreFailed

READS = """
import resource
from holdfast._engine.values import codec, digest

value = {value}
node = codec.encode(value)
expected = len(value)
del value
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + {more}, unlimited[1]))
for _ in range(3):
    try:
        codec.decode(node)
    except MemoryError:
        continue
    raise SystemExit("it was read")
resource.setrlimit(resource.RLIMIT_AS, unlimited)
assert len(codec.decode(node)) == expected
print("lives")
"""


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("'x' * 20_000_000", 4_000_000),
        ("[[1] for _ in range(200_000)] + ['x' * 20_000_000]", 30_000_000),
    ],
    ids=["a text", "a text behind many lists"],
)
def test_what_does_not_fit_into_memory_is_a_memory_error(value: str, more: int) -> None:
    program = READS.format(value=value, more=more)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives\n", "")


WRITES = """
import resource
from holdfast._engine.values import codec, digest

text = "x" * 20_000_000
raw = text.encode()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + 5_000_000, unlimited[1]))
for act in (lambda: {act},) * 3:
    try:
        act()
    except MemoryError:
        continue
    raise SystemExit("it was written")
resource.setrlimit(resource.RLIMIT_AS, unlimited)
{act}
print("lives")
"""


@pytest.mark.parametrize(
    "act",
    ["codec.encode([text])", "digest.digest([text])", "digest.seal(bytes(16), (1, 2, raw))"],
    ids=["its node", "its digest", "the digest of its chunk"],
)
def test_what_there_is_no_memory_to_write_is_a_memory_error(act: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES.format(act=act)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives\n", "")


@pytest.mark.parametrize("error", [StoreFailed("out of memory"), MemoryError(), RunDeleted("r")])
def test_a_store_that_cannot_be_read_is_no_damage_of_a_value(error: Exception) -> None:
    def fetch(_number: int) -> dict[int, bytes]:
        raise error

    values = Values(fetch, next_chunk=2)
    for read in (values.decode, Readable(values).read):
        with pytest.raises(type(error)):
            read(b'{"chunk":1}')
