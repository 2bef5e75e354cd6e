"""Pages are followed as a reader follows them, and a page that lies is found."""

import os
from pathlib import Path

import pytest

from tests.support.documents import Reader, matches, steps

PAGE = """# How to count

Write a file:

```yaml title="numbers.txt"
one
two
```

-   then look at it

    ```sh
    COUNT=$(wc -l < numbers.txt)
    ```

    ```sh
    echo "lines   $((COUNT))" of a file
    ```

    ```text
    lines 2 of … file
    ```

<!-- not typed: needs another machine -->

```sh
exit 1
```

```go
nothing
```
"""


def test_blocks_are_found_with_their_lines():
    """Only what is to be done."""
    found = [(step.what, step.line, step.file) for step in steps(PAGE)]

    assert found == [
        ("write", 5, "numbers.txt"),
        ("type", 12, ""),
        ("type", 16, ""),
        ("show", 20, ""),
    ]


async def test_a_page_is_followed_in_one_shell(tmp_path: Path):
    """Variables and files stay from block to block."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)

    assert await Reader(tmp_path, os.environ).follow(page) == 2


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", "page.md:1 failed"),
        ("```sh\necho $MISSING_VARIABLE\n```\n", "MISSING_VARIABLE"),
        ("```sh\nfalse | true\n```\n", "page.md:1 failed"),
        ("```sh\necho one\n```\n\n```text\ntwo\n```\n", "page.md:5 shows"),
    ],
)
async def test_a_page_that_lies_is_found(tmp_path: Path, block: str, problem: str):
    """A command that fails, and output that differs."""
    page = tmp_path / "page.md"
    page.write_text(block)

    with pytest.raises(AssertionError, match=problem):
        await Reader(tmp_path, os.environ).follow(page)


def test_columns_may_be_wider():
    """But words may not differ."""
    assert matches(
        "NAME  READY\nx  True\n", "NAME                 READY\nx                    True  \n"
    )
    assert not matches("x True", "x False")
    assert not matches("x True", "x True\ny True")
