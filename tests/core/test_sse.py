"""Server-sent events, split at any position."""

from __future__ import annotations

from tests.support import every_row

from workers_ai._wire.sse import SSEDecoder

SPELLINGS = {
    "plain": (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', b"[DONE]"]),
    "no space after the colon": (b"data:1\n\ndata:2\n\n", [b"1", b"2"]),
    "one space only is dropped": (b"data:  1\n\n", [b" 1"]),
    "CRLF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
    "CR alone": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "mixed line ends": (b"data: 1\r\n\ndata: 2\n\r\n", [b"1", b"2"]),
    "comments": (b": ping\n\ndata: 1\n: ping\n\n:\n\n", [b"1"]),
    "other fields": (b"event: message\nid: 7\nretry: 9\ndata: 1\n\n", [b"1"]),
    "several data lines": (b'data: {"response":\ndata: "b"}\n\n', [b'{"response":\n"b"}']),
    "data without a colon": (b"data\ndata: 1\n\n", [b"\n1"]),
    "empty data": (b"data:\n\n", [b""]),
    "empty lines": (b"\n\n\ndata: 1\n\n\n\n", [b"1"]),
    "a bare end mark": (b"data: 1\n\n[DONE]\n", [b"1", b"[DONE]"]),
    "end mark twice": (b"data: [DONE]\n\ndata: [DONE]\n\n", [b"[DONE]", b"[DONE]"]),
    "no final newline": (b"data: 1\n\ndata: 2", [b"1", b"2"]),
    "no final empty line": (b"data: 1\n\ndata: 2\n", [b"1", b"2"]),
    "no final newline, CRLF": (b"data: 1\r\n\r\ndata: 2\r", [b"1", b"2"]),
    "four-byte letters": ("data: 你🦊\n\n".encode(), ["你🦊".encode()]),
    "a byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
    "nothing": (b"", []),
}


@every_row(("stream", "events"), SPELLINGS.values())
def test_events_are_the_same_for_every_cut(stream: bytes, events: list[bytes]) -> None:
    for cut in range(len(stream) + 1):
        decoder = SSEDecoder()
        assert decoder.decode(stream[:cut]) + decoder.decode(stream[cut:]) + decoder.flush() == events


@every_row(("stream", "events"), SPELLINGS.values())
@every_row("size", [1, 2, 3, 7])
def test_events_are_the_same_in_pieces_of_any_size(stream: bytes, events: list[bytes], size: int) -> None:
    decoder = SSEDecoder()
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert [data for piece in pieces for data in decoder.decode(piece)] + decoder.flush() == events


def test_an_event_is_yielded_when_it_is_complete() -> None:
    decoder = SSEDecoder()
    assert decoder.decode(b"data: 1\n\ndata: 2") == [b"1"]
    assert decoder.decode(b"\n") == []
    assert decoder.decode(b"\n") == [b"2"]
    assert decoder.flush() == []
