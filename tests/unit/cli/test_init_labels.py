"""Which labels agents may set, as `knfleet init` is asked for it."""

import pytest
from click.testing import CliRunner

from knfleet.cli.fleet.init import command, label_prefixes


def test_prefixes_of_labels_are_those_that_are_named():
    assert "agent.open-cluster-management.io/" in label_prefixes(None)
    assert label_prefixes("example.com/,tier") == ("example.com/", "tier")
    assert label_prefixes("") == ()


@pytest.mark.parametrize("wrong", ["'] || true", "/x", "a b", "a/b/c"])
def test_a_prefix_with_which_no_label_begins_is_refused(wrong: str):
    result = CliRunner().invoke(command, ["--dry-run", "--agent-label-prefixes", wrong])

    assert result.exit_code == 2
    assert "no label begins so" in result.output
