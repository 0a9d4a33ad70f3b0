"""The canonical path of a request."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Scope

from delayq.web.request_path import canonical, unescaped

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1).filter(lambda each: each not in {".", ".."})
ROOTS = st.sampled_from(["", "/queues", "/ops/all queues"])


def scope_of(raw: str, root: str = "") -> Scope:
    """The scope that uvicorn makes of a request target, behind a proxy with a path or mounted below one."""
    return {"path": root + unquote(raw), "raw_path": (root + raw).encode(), "root_path": root}


@given(ROOTS, st.lists(TEXT, min_size=1), st.booleans())
def test_each_segment_stays_one_segment(root: str, segments: list[str], has_slash: bool):
    sent = segments + [""] * has_slash
    path = canonical(scope_of("".join(f"/{quote(each, safe='')}" for each in sent), root))["path"]
    assert [unescaped(each) for each in path.removeprefix(root).split("/")[1:]] == sent


@given(ROOTS, st.lists(TEXT, min_size=1))
def test_path_is_the_same_with_every_character_quoted(root: str, segments: list[str]):
    plain = "".join(f"/{quote(each, safe='')}" for each in segments)
    odd = "".join("/" + "".join(f"%{byte:02x}" for byte in each.encode()) for each in segments)
    assert canonical(scope_of(plain, root)) == canonical(scope_of(odd, root))


@given(ROOTS, st.text(st.characters(max_codepoint=126, min_codepoint=32)))
def test_any_target_is_refused_or_has_no_second_meaning(root: str, target: str):
    try:
        path = canonical(scope_of(f"/{target.replace('?', '')}", root))["path"].removeprefix(root)
    except ValueError:
        return
    assert not {"", ".", ".."} & set(path[1:].split("/")[:-1])
    assert all(32 <= ord(each) != 127 for each in unescaped(path))
    again = canonical(scope_of(quote(path, safe="/%"), root))["path"]
    assert again == root + path


@pytest.mark.parametrize("form", ["/q/x", "/x", None])
@pytest.mark.parametrize("path", ["/q/x", "/x"])
def test_root_path_may_be_in_the_path_or_not(path: str, form: str | None):
    raw = {} if form is None else {"raw_path": form.encode()}
    made = canonical({"path": path, "root_path": "/q", **raw})
    assert (made["path"], "raw_path" in made) == ("/q/x", False)


@pytest.mark.parametrize(
    ("raw", "why"),
    {
        "%2Fstatic%2F%0A/api/v1/servers": "does not start with a slash",
        "http://host/login": "does not start with a slash",
        "*": "does not start with a slash",
        "//login": "empty segment",
        "/a//b": "empty segment",
        "/a/../login": "a '.' or '..'",
        "/%2e%2E/login": "a '.' or '..'",
        "/login%0A": "control character",
        "/login%00": "control character",
        "/a%C2%85": "control character",
        "/a%2": "percent-encoded",
        "/100%": "percent-encoded",
    }.items(),
)
def test_path_that_is_not_canonical_is_refused(raw: str, why: str):
    with pytest.raises(ValueError, match=why):
        canonical(scope_of(raw))


def test_path_that_the_application_around_has_changed_is_refused():
    with pytest.raises(ValueError, match="has changed it to '/login'"):
        canonical({"path": "/login", "raw_path": b"/queues/%2Flogin", "root_path": ""})


def test_bytes_that_are_not_text_come_through_as_bytes():
    (segment,) = canonical(scope_of("/%FF%C0%AF"))["path"].split("/")[1:]
    assert unescaped(segment).encode(errors="surrogateescape") == b"\xff\xc0\xaf"
