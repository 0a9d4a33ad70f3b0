"""Templates, as files: the end of a line after a tag is not written, so it does not part the texts beside it."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

TAG = re.compile(r"\{%.*?%\}|\{#.*?#\}")
BLOCKS = r"p|div|dl|dt|dd|ul|ol|li|h\d|table|caption|thead|tbody|tr|t[dh]|section|nav|form|main|header|details|summary"
ENDS_TEXT = re.compile(rf"(?<!>)$|</?(?!(?:{BLOCKS}|pre|option|svg|path|label|fig\w*|input|progress)\b)[a-z]+[^>]*>$")
BEGINS_TEXT = re.compile(r"\{\{(?! (?:forms|parts|columns|lists)\.)|[\w(“]|<(?:a|span|strong|abbr|code|time)\b")


def test_texts_on_two_lines_are_parted_by_a_blank():
    """If a line ends in a tag, Jinja drops its end; ``+%}`` keeps it."""
    joined = []
    for template in files("delayq.web").joinpath("templates").iterdir():
        for line, following in pairwise(template.read_text().splitlines()):
            above, below = (TAG.sub("", each).strip(" ") for each in (line, following))
            if line.endswith("%}") and not line.endswith("+%}") and above and "{% block" not in line:
                is_joined = ENDS_TEXT.search(above) and not TAG.sub("", line).endswith(" ")
                if is_joined and BEGINS_TEXT.match(below) and "{%- else" not in following:
                    joined.append(f"{template.name}: {line.strip()[-60:]} {following.strip()[:60]}")
    assert joined == []
