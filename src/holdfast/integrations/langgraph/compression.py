"""Compressed rows: deflated with a preset dictionary of their common words.

The dictionary is part of the format. Another one needs its own number in front of the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import Corrupt

ROW_BYTES = 64 * 1024 * 1024
"""The maximum length of a row; data that claims more is not unpacked."""
PART_BYTES = 600_000
"""A value of a memory has at most 1 MiB, and bytes take a third more in it."""
_LEVEL = 6

_WORDS = (
    b"system_fingerprint finish_reason stop tool_calls model_name logprobs service_tier default"
    b" token_usage completion_tokens prompt_tokens total_tokens input_tokens output_tokens"
    b" input_token_details output_token_details cache_read reasoning model_provider openai anthropic"
    b"langchain_core.messages.systemSystemMessagelangchain_core.messages.humanHumanMessage"
    b"langchain_core.messages.toolToolMessage\xa7content\xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xc0\xa2id\xc0\xactool_call_id\xa8artifact\xc0"
    b"\xa6status\xa7success\xb3model_validate_json"
    b"\xa4type\xa5human\xa4name\xc0\xa2id\xc0\xb3model_validate_json"
    b"\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda\x03\xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xc0\xaatool_calls\x90"
    b"\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
    b"~__pregel_push, ~__pregel_pull, __pregel_tasks __start__ __interrupt__ __input__"
    b"\xa1v\x04\xa2ts\xb0channel_versions\xadversions_seen\xb0updated_channels\xc0"
    b"\xadpending_sends\x90\xa6source\xa5input\xa6source\xa4loop\xa4step\xa7parents\x80\xa6run_id"
    b"\xa1t\xd9$00000000-0000-0000-0000-000000000000\xa1p\xb4~__pregel_pull, tools\xa1w\x92\x93\x00"
    b"\xa8messages\x81\xa1l\x91\xb6\x93\x01\xafbranch:to:tools\x91\xa4null\x91\xa7msgpack"
    b"\x83\xa1p\xd9$1f1e1397-84e7-6000-8000-000000000000\xa1s\xcd\xa1b\x81\xa1~\x83\xa1x\x83\xa1=\x81"
    b"\xafbranch:to:model\x91\xa4null\xa1~\x81\xa8messages\x81\xa1~\x81\xa1l\x81\xa1+\x92\xcd\x91\xd9;"
    b"\xa1-\x91\xafbranch:to:tools\xa1c\x82\xa1=\x81\xa2ts\xd9 2026-01-01T00:00:00.000000+00:00\xa1~\x83"
    b"\xb0channel_versions\x81\xa1=\x82\xa8messages\xafbranch:to:model\xadversions_seen\x81\xa1~\x81\xa5model"
    b"\x81\xa1=\x81\xafbranch:to:model\xb0updated_channels\x81\xa1+\x92\x00\x92\xafbranch:to:model"
    b"\xa8messages\xa1m\x81\xa1=\x81\xa4step\xa1n\xcd"
)


def squeezed(data: bytes) -> bytes:
    """Return deflated data."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=_WORDS)
    return deflate.compress(data) + deflate.flush()


def unsqueezed(data: bytes, length: int) -> bytes:
    """Return inflated data of this length."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_WORDS)
    try:
        found = inflate.decompress(data, length)
        if inflate.decompress(inflate.unconsumed_tail, 1) or not inflate.eof:
            raise Corrupt("a row of a thread", why="it has another length")
    except zlib.error as error:
        raise Corrupt("a row of a thread", why=str(error)) from None
    return found


def row(value: Any) -> bytes:
    """Encode plain data as a row."""
    return squeezed(msgspec.msgpack.encode(value))


def row_value(data: bytes) -> Any:
    """Return the plain data of a row."""
    return msgspec.msgpack.decode(unsqueezed(data, ROW_BYTES))


def parts(key: str, value: bytes) -> dict[str, Any]:
    """Return the values to store for a key: the bytes, or for many bytes, the number of parts,
    which have their own keys."""
    if len(value) <= PART_BYTES:
        return {key: value}
    found = [value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES)]
    return {key: len(found), **{f"p/{key}/{number}": part for number, part in enumerate(found)}}


def joined(key: str, value: Any, read: Callable[[str], Any]) -> bytes:
    """Return the bytes of a key whose value was read."""
    if isinstance(value, int):
        return b"".join(read(f"p/{key}/{number}") for number in range(value))
    return bytes(value)
