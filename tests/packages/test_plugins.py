"""The program as a plugin of kubectl and kn, by Krew and by Homebrew's formula."""

import asyncio
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from knfleet.dev.progress_reporter import SilentProgress
from knfleet.kube.yaml import load_all
from testbed.go_build import built
from tests.packages.conftest import PYTHON, REPOSITORY, ROOT, VERSION, MadeRelease, run

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("packages")]
BASE = Path(sys.base_prefix) / "bin"


@pytest.fixture(scope="session")
def krew() -> Path:
    """The plugin manager of kubectl, built unless it is kept."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Krew cannot be built")
    return asyncio.run(built("krew", "sigs.k8s.io/krew/cmd/krew", "krew", SilentProgress()))


def python_folder(folder: Path) -> Path:
    """A folder whose `python3` is this version of Python, without what is installed beside it."""
    folder.mkdir()
    (folder / "python3").symlink_to(BASE / f"python{PYTHON}")
    return folder


def test_krew_installs_what_its_manifest_says(
    release: MadeRelease, krew: Path, kubectl_path: Path, tmp_path: Path
) -> None:
    """From the archive, whose checksum it compares; kubectl finds the plugin by its name."""
    manifest = release.files / "knfleet.yaml"
    home = {"KREW_ROOT": str(tmp_path / "krew"), "HOME": str(tmp_path / "home")}
    found = (python_folder(tmp_path / "python"), kubectl_path, tmp_path / "krew/bin")
    path = {"PATH": ":".join([*map(str, found), "/usr/bin", "/bin"])}

    run(krew, "install", "--manifest", manifest, "--archive", release.program, variables=home)
    said = run("kubectl", "knfleet", "--version", variables={**home, **path})

    assert said.strip() == f"knfleet, version {VERSION}"
    (entry,) = load_all(manifest.read_text())
    platform = entry["spec"]["platforms"][0]
    address = f"{REPOSITORY}/releases/download/v{VERSION}/{release.program.name}"
    assert platform["uri"] == address
    assert len(entry["spec"]["shortDescription"]) <= 50


def test_krew_refuses_an_archive_with_another_checksum(
    release: MadeRelease, krew: Path, tmp_path: Path
) -> None:
    """So the manifest protects what is downloaded."""
    other = tmp_path / "other.tar.gz"
    other.write_bytes(release.program.read_bytes() + b"x")
    home = {"KREW_ROOT": str(tmp_path / "krew"), "HOME": str(tmp_path / "home")}
    manifest = release.files / "knfleet.yaml"

    with pytest.raises(AssertionError, match="checksum does not match"):
        run(krew, "install", "--manifest", manifest, "--archive", other, variables=home)


FORMULA = """
require "fileutils"
require "pathname"
class Pathname
  def install(name) = (mkpath; FileUtils.cp(name, self / name, preserve: true))
  def install_symlink(names) = names.each { |to, name| FileUtils.ln_sf(to, self / name) }
  alias write_plain write
  def write(text) = (dirname.mkpath; write_plain(text); chmod(0o755))
end
class Version < String; end
class Formula
  def self.values = (@values ||= {})
  %w[desc homepage version license url sha256 depends_on].each do |name|
    define_singleton_method(name) { |value| values[name] = value }
  end
  %w[linux macos intel arm].each do |name|
    define_singleton_method("on_#{name}") { |&part| part.call }
  end
  def self.test = nil
  def self.[](_) = Struct.new(:opt_bin).new(ENV.fetch("PYTHONS"))
  def prefix = Pathname(ENV.fetch("PREFIX"))
  def bin = prefix / "bin"
  def libexec = prefix / "libexec"
end
def Formula(name) = Formula[name]
load ARGV[0]
Knfleet.new.install
puts Knfleet.values.values_at("version", "sha256", "license")
"""
"""As much of Homebrew as the formula uses."""


def test_the_formula_installs_the_program_under_all_its_names(
    release: MadeRelease, tmp_path: Path
) -> None:
    """Run by Ruby, beside the unpacked archive, as Homebrew does."""
    if shutil.which("ruby") is None:
        pytest.skip("ruby is not installed, so that the formula cannot be run")
    work = tmp_path / "work"
    work.mkdir()
    with tarfile.open(release.program) as packed:
        packed.extractall(work, filter="data")
    (tmp_path / "formula.rb").write_text(FORMULA)
    variables = {
        "PREFIX": str(tmp_path / "prefix"), "PYTHONS": str(BASE), "HOME": str(tmp_path / "home"),
    }  # fmt: skip
    formula = release.files / "knfleet.rb"

    printed = run("ruby", tmp_path / "formula.rb", formula, at=work, variables=variables)

    version, sha256, license_name = printed.split()
    assert (version, license_name) == (VERSION, "Apache-2.0")
    assert f"{sha256}  {release.program.name}" in (release.files / "SHA256SUMS").read_text()
    for name in ("knfleet", "kubectl-knfleet", "kn-fleet"):
        said = run(tmp_path / "prefix/bin" / name, "--version", variables=variables)
        assert said.strip() == f"knfleet, version {VERSION}"


def test_the_plugin_of_kn_has_a_name_that_kn_takes() -> None:
    """`kn fleet` runs the program `kn-fleet`; a part of the name would be a group of kn."""
    scripts = re.findall(r"(?m)^(kn-[\w-]+) = ", (ROOT / "pyproject.toml").read_text())

    assert scripts == ["kn-fleet"]
