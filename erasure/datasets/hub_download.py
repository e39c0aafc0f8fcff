"""Download of a dataset from the Hugging Face hub to a folder, whole or not at all, with checksums of its files."""

import shutil
from pathlib import Path, PurePosixPath

from erasure.fetch_errors import FetchError
from erasure.optional_packages import needs
from erasure.store.atomic_files import remove, write_text
from erasure.store.checked_files import file_checksum
from erasure.store.lease import Lease

SUMS = "SHA256SUMS"  # in the format of `sha256sum`, written after the last file


def fetch_repository(repository: str, revision: str | None, folder: Path) -> None:
    """Download every file of a dataset repository to `folder`, which appears once all files are verified.

    An interrupted download is resumed. If several processes need the same dataset, one downloads it. An existing folder
    is checked, and repaired if it is damaged.

    Raises:
        FetchError: a file differs from its checksum on the hub.
        Exception: errors of the hub's library, for example without a network or an account.
    """
    with needs("hub"):
        from huggingface_hub import HfApi, snapshot_download  # takes a second

    partial = folder.with_name(f".{folder.name}.partial")
    with Lease(folder.with_name(f".{folder.name}.lock")):
        if folder.is_dir():
            if damage(folder) is None:
                return
            folder.replace(partial)
        published = HfApi().dataset_info(repository, revision=revision, files_metadata=True)
        snapshot_download(repository, repo_type="dataset", revision=published.sha, local_dir=partial)
        shutil.rmtree(partial / ".cache", ignore_errors=True)  # the library's state of the download
        for old in (partial / SUMS, *partial.glob(f".{SUMS}.*.tmp")):  # left by a repair or by a writer that was killed
            remove(old)
        sums = checksums(partial)
        for file in published.siblings or []:
            expected = file.lfs.sha256 if file.lfs else None
            if not _is_data(file.rfilename):
                continue
            if file.rfilename not in sums or expected not in (None, sums[file.rfilename]):
                (partial / file.rfilename).unlink(missing_ok=True)
                raise FetchError(f"{file.rfilename} of {repository} differs from the file on the hub: try again")
        write_text(partial / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        partial.replace(folder)


def checksums(root: Path) -> dict[str, str]:
    """Return the SHA-256 of a file, or of all files in a folder except hidden ones, by relative path.

    They are read from the `SHA256SUMS` of the folder, or computed if there is none.
    """
    if root.is_file():
        return {root.name: file_checksum(root)}
    noted = root / SUMS
    if noted.is_file():
        return {line[66:]: line[:64] for line in noted.read_text(encoding="utf-8").split("\n") if line}
    return {name: file_checksum(root / name) for name in file_names(root)}


def file_names(root: Path) -> list[str]:
    """Return the relative paths of all files in a folder except hidden ones, in order."""
    names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(filter(_is_data, names))


def damage(root: Path) -> str | None:
    """Compare the files of a folder with its `SHA256SUMS`, if there is one; return the first problem, or None."""
    if not (root / SUMS).is_file():
        return None
    for name, expected in checksums(root).items():
        if not (root / name).is_file():
            return f"{root / name} is missing"
        if file_checksum(root / name) != expected:
            return f"{root / name} is damaged (its checksum is not the published one)"
    return None


def _is_data(name: str) -> bool:
    return name != SUMS and not any(part.startswith(".") for part in PurePosixPath(name).parts)
