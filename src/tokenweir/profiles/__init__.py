"""Engine profiles as data: one file each in ``data/``, read and checked by ``loading.py``."""

from tokenweir.profiles.loading import PROFILE_NAMES, profile

__all__ = ["PROFILE_NAMES", "profile"]
