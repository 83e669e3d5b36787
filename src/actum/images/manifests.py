"""From the files of an archive to one image: its configuration and its layers, digests compared.

Three forms are read: an OCI layout (`index.json`, blobs by digest), an archive of `docker save`
(`manifest.json`), and anything else as one layer, a plain root file system.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actum.errors import Refused
from actum.images.image_archive import Files
from actum.images.image_bounds import Bounds, invalid, shown, too_large
from actum.value import value

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_NESTED = 4
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)


@value
class Layer:
    name: str  #: of the file in the archive
    digest: str  #: of that file; empty where the archive names none
    size: int  #: -1: the archive says none
    content_digest: str  #: of the tar archive in it


@value
class Description:
    """One image of an archive. Its configuration names the digest of each layer's content."""

    id: str  #: digest of the configuration
    digests: tuple[str, ...]  #: of its manifest, and of the indexes above that
    names: tuple[str, ...]  #: that the archive gives it, with their tags: for people
    layers: tuple[Layer, ...]
    platform: str


def read_image(files: Files, bounds: Bounds, wanted: str) -> Description | None:
    """The image that is called `wanted`, or the only one; ``None`` for a plain root file system."""
    if files.has("index.json") and files.has("oci-layout"):
        found = list(_of_index(files, bounds))
    elif files.has("manifest.json"):
        found = list(_of_docker(files, bounds))
    else:
        return None
    return _chosen(found, wanted)


@value
class _Candidate:
    """A manifest that an index names, or an image of `docker save`."""

    names: tuple[str, ...]
    platform: str  #: empty: the index does not say
    description: Description


def _chosen(found: Sequence[_Candidate], wanted: str) -> Description:
    ours = _ours()
    fitting = [each for each in found if each.platform == ours]
    if not fitting:
        there = ", ".join(sorted({shown(each.platform) for each in found})) or "no image"
        raise Refused(
            "IMAGE_PLATFORM",
            f"The image was not added: the archive has {there}, and this host runs {ours}.",
            remedy=f"Export the image for {ours}.",
        )
    named: dict[str, set[str]] = {}  # digest of a manifest or an index -> images
    for each in fitting:
        for digest in each.description.digests:
            named.setdefault(digest, set()).add(each.description.id)
    if wanted:
        fitting = [each for each in fitting if _is_called(each, wanted)]
    different = {each.description.id: each for each in fitting}
    if len(different) != 1:
        known = sorted({name for each in found for name in (*each.names, each.description.id)})
        listed = ", ".join(shown(name) for name in known)
        which = f"none is called {wanted}" if wanted and not fitting else "several are in it"
        raise Refused(
            "IMAGE_AMBIGUOUS",
            f"The archive was not added: {which}. It has {listed}.",
            remedy="Say which one: `actum images add ARCHIVE --image NAME`.",
        )
    (chosen,) = different.values()
    names = tuple(dict.fromkeys(name for each in fitting for name in each.names))
    description = chosen.description
    return Description(
        id=description.id,
        # An index of several images for this platform names none of them.
        digests=tuple(
            dict.fromkeys(
                digest
                for each in fitting
                for digest in each.description.digests
                if len(named[digest]) == 1
            )
        ),
        names=names,
        layers=description.layers,
        platform=description.platform,
    )


def _is_called(candidate: _Candidate, wanted: str) -> bool:
    digests = candidate.description.digests
    return wanted in (*candidate.names, candidate.description.id, *digests)


# -- an OCI layout -------------------------------------------------------------------------------


def _of_index(files: Files, bounds: Bounds) -> Iterator[_Candidate]:
    waiting: list[tuple[Mapping[str, Any], tuple[str, ...], tuple[str, ...], int]] = []
    seen: set[tuple[str, tuple[str, ...]]] = set()

    def take(
        index: Mapping[str, Any], above: tuple[str, ...], names: tuple[str, ...], depth: int
    ) -> None:
        if depth > _MOST_NESTED:
            raise invalid(f"an index is nested deeper than {_MOST_NESTED} levels")
        for each in _objects(index, "manifests"):
            if _is_attestation(each):
                continue
            waiting.append((each, above, (*names, *_names_of(each)), depth))
            if len(waiting) + len(seen) > bounds.manifests:
                raise too_large(f"it has more than {bounds.manifests} manifests")

    take(_document(_content(files, "index.json", bounds), "index.json"), (), (), 1)
    while waiting:
        each, above, names, depth = waiting.pop(0)
        digest, size = _descriptor(each)
        if (digest, names) in seen:
            continue
        seen.add((digest, names))
        found = _document(_blob(files, digest, size, bounds), digest)
        if "manifests" in found:
            if "layers" in found or "config" in found:
                raise invalid(f"{digest} is an index and a manifest at once")
            take(found, (digest, *above), names, depth + 1)
            continue
        description = _of_manifest(files, found, (digest, *above), names, bounds)
        if description is not None:
            yield _Candidate(names=names, platform=description.platform, description=description)


def _of_manifest(
    files: Files,
    manifest: Mapping[str, Any],
    digests: tuple[str, ...],
    names: tuple[str, ...],
    bounds: Bounds,
) -> Description | None:
    config = _object(manifest, "config")
    if config.get("mediaType") not in _CONFIGS:
        return None  # an artifact of another kind: a signature, a chart
    digest, size = _descriptor(config)
    read = _document(_blob(files, digest, size, bounds), digest)
    layers = _objects(manifest, "layers")
    contents = _contents(read, len(layers), bounds)
    described = [_descriptor(each) for each in layers]
    return Description(
        id=digest,
        digests=digests,
        names=names,
        layers=tuple(
            Layer(name=_path(layer), digest=layer, size=size, content_digest=content)
            for (layer, size), content in zip(described, contents, strict=True)
        ),
        platform=_platform(read),
    )


def _descriptor(each: Mapping[str, Any]) -> tuple[str, int]:
    digest, size = each.get("digest"), each.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise invalid(f"a part of it has no sha256 digest ({shown(repr(digest))})")
    if type(size) is not int or size < 0:
        raise invalid(f"{digest} has no size")
    return digest, size


def _path(digest: str) -> str:
    return digest.replace("sha256:", "blobs/sha256/")


def _blob(files: Files, digest: str, size: int, bounds: Bounds) -> bytes:
    content = _content(files, _path(digest), bounds)
    _require_digest(content, digest)
    if len(content) != size:
        raise invalid(f"{digest} has {len(content)} bytes, not {size} as it is described")
    return content


def _is_attestation(each: Mapping[str, Any]) -> bool:
    platform = each.get("platform")
    return isinstance(platform, Mapping) and platform.get("os") == "unknown"


def _names_of(each: Mapping[str, Any]) -> tuple[str, ...]:
    annotations = each.get("annotations")
    if not isinstance(annotations, Mapping):
        return ()
    names = [annotations.get(key) for key in _NAMES]
    return tuple(name for name in names if isinstance(name, str) and 0 < len(name) <= 400)[:1]


# -- docker save -----------------------------------------------------------------------------------


def _of_docker(files: Files, bounds: Bounds) -> Iterator[_Candidate]:
    images = _parsed(_content(files, "manifest.json", bounds), "manifest.json")
    if not isinstance(images, list) or not all(isinstance(each, dict) for each in images):
        raise invalid("manifest.json is no list of images")
    if len(images) > bounds.manifests:
        raise too_large(f"it has more than {bounds.manifests} images")
    for each in images:
        name = each.get("Config")
        if not isinstance(name, str):
            raise invalid("manifest.json names no configuration")
        content = _content(files, name, bounds)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        # The file's name is its digest; a name of another form says nothing about the content.
        stem = re.fullmatch(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?", name)
        if stem is None or f"sha256:{stem[1]}" != digest:
            raise invalid(f"the configuration {shown(name)} has the digest {digest}")
        layers, tags = each.get("Layers"), each.get("RepoTags") or []
        if not isinstance(layers, list) or not all(isinstance(path, str) for path in layers):
            raise invalid("manifest.json names no layers")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise invalid("manifest.json has tags that are no text")
        config = _document(content, name)
        contents = _contents(config, len(layers), bounds)
        description = Description(
            id=digest,
            digests=(),
            names=tuple(tag[:400] for tag in tags),
            layers=tuple(
                Layer(name=path, digest="", size=-1, content_digest=found)
                for path, found in zip(layers, contents, strict=True)
            ),
            platform=_platform(config),
        )
        yield _Candidate(
            names=description.names, platform=description.platform, description=description
        )


# -- documents -------------------------------------------------------------------------------------


def plain_image(content_digest: str) -> Description:
    """A root file system as an image: equal archives are one image, on every host."""
    layers = {"type": "layers", "diff_ids": [content_digest]}
    system, _, machine = _ours().partition("/")
    config = {"architecture": machine, "config": {}, "os": system, "rootfs": layers}
    written = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    return Description(
        id=f"sha256:{hashlib.sha256(written).hexdigest()}",
        digests=(),
        names=(),
        layers=(Layer(name="", digest="", size=-1, content_digest=content_digest),),
        platform=_ours(),
    )


def _ours() -> str:
    machine = os.uname().machine
    return f"linux/{_MACHINES.get(machine, machine)}"


def _contents(config: Mapping[str, Any], count: int, bounds: Bounds) -> list[str]:
    contents = _object(config, "rootfs").get("diff_ids")
    if not isinstance(contents, list) or not all(
        isinstance(each, str) and _DIGEST.fullmatch(each) for each in contents
    ):
        raise invalid("its configuration names no digests of layers")
    if len(contents) != count:
        raise invalid(f"it has {count} layers, and its configuration names {len(contents)}")
    if count > bounds.layers:
        raise too_large(f"it has more than {bounds.layers} layers")
    return contents


def _platform(config: Mapping[str, Any]) -> str:
    return f"{config.get('os')}/{config.get('architecture')}"


def _content(files: Files, name: str, bounds: Bounds) -> bytes:
    with files.open(name) as (file, size):
        if size > bounds.document_bytes:
            raise too_large(f"{shown(name)} has {size} bytes")
        content = file.read(size)
    if len(content) != size:
        raise invalid(f"{shown(name)} is shorter than it says")
    return content


def _require_digest(content: bytes, digest: str) -> None:
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if found != digest:
        raise Refused(
            "IMAGE_DIGEST",
            f"The image was not added: what is stored as {digest} has the digest {found}.",
            remedy="Get the archive again from its source; this one was changed or damaged.",
        )


def require_layer(layer: Layer, size: int, digest: str, content_digest: str) -> None:
    """Compare a layer that was read with what manifest and configuration say of it."""
    if layer.size not in (-1, size):
        raise invalid(f"{layer.digest} has {size} bytes, not {layer.size} as it is described")
    for said, found in ((layer.digest, digest), (layer.content_digest, content_digest)):
        if said not in ("", found):
            raise Refused(
                "IMAGE_DIGEST",
                f"The image was not added: a layer that is named {said} has the digest {found}.",
                remedy="Get the archive again from its source; this one was changed or damaged.",
            )


def _document(content: bytes, name: str) -> Mapping[str, Any]:
    parsed = _parsed(content, name)
    if not isinstance(parsed, dict):
        raise invalid(f"{shown(name)} is no JSON object")
    return parsed


def _parsed(content: bytes, name: str) -> Any:
    try:
        return json.loads(content, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise invalid(f"{shown(name)} is no usable JSON ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    if not isinstance(found, Mapping):
        raise invalid(f"it has a document without `{key}`")
    return found


def _objects(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = document.get(key)
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise invalid(f"it has a document without a list `{key}`")
    return found
