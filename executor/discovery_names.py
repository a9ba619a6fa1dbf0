"""Short names of GPU types from the names that NVIDIA prints."""

from __future__ import annotations

import re

# Brand, memory kind and packaging that no two types of equal speed differ in. PCIe and NVL stay:
# such a board has less power than the SXM one of the same name, and is slower.
_NOISE = re.compile(
    r"nvidia|geforce|tesla|gpu|generation|edition|graphics|device|(g?hbm|gddr)\d*[a-z]?|sxm\d*"
)
_MEMORY = re.compile(r"\d+(\.\d+)?gb")


def type_name(product: str) -> str:
    """A machine type for a product name; equal for GPUs that are equally fast.

    ``NVIDIA H200`` is ``h200``, ``NVIDIA A100-SXM4-80GB`` is ``a100-80gb``, ``NVIDIA A100 80GB
    PCIe`` is ``a100-pcie-80gb``, ``NVIDIA GeForce RTX 4090`` is ``rtx4090``; a MIG slice,
    ``NVIDIA H200 MIG 1g.18gb``, is ``h200-1g.18gb``. Never empty.
    """
    whole, _, profile = product.partition(" MIG ")
    words = [word for word in re.split(r"[^a-z0-9.]+", whole.lower()) if word]
    # "80 GB" is one word, like "80GB".
    for at in range(len(words) - 1, 0, -1):
        if words[at] == "gb" and words[at - 1].isdigit():
            words[at - 1 : at + 1] = [f"{words[at - 1]}gb"]
    kept = [word for word in words if not _NOISE.fullmatch(word)]
    memory = [word for word in kept if _MEMORY.fullmatch(word)]
    name = "-".join([word for word in kept if word not in memory] + memory[:1])
    name = re.sub(r"\b(rtx|gtx)-(?=\d)", r"\1", name)  # rtx-4090 -> rtx4090
    name = re.sub(r"(?<=\d)-ti\b", "ti", name)
    if profile:
        name += "-" + re.sub(r"[^a-z0-9.+]+", "-", profile.lower()).strip("-")
    return name or "gpu"
