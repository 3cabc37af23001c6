"""What do the settings say of tenants, in the words of a request's way through the gateway?"""

from __future__ import annotations

from tokenweir.http.identity import Identities, Identity
from tokenweir.http.wishes import Allowance
from tokenweir.settings.model import Settings
from tokenweir.settings.tenants import (
    DEFAULT_TENANT,
    TenantSettings,
    classes_of,
    tenants_by_key,
)

__all__ = ["identities_of"]


def identities_of(settings: Settings) -> Identities:
    """Return the tenants of a gateway.

    Raises:
        ConfigError: A key is not where it should be any more.
    """
    by_name = {tenant.name: _identity(tenant) for tenant in settings.tenants}
    keys = tenants_by_key(settings.tenants, path="tenants")
    return Identities(
        {digest: by_name[name] for digest, name in keys.items()},
        others=by_name.get(DEFAULT_TENANT, Identity(DEFAULT_TENANT)),
    )


def _identity(tenant: TenantSettings) -> Identity:
    highest, default = classes_of(tenant)
    allowance = Allowance(
        highest=highest,
        default=default,
        wait_ns_max=tenant.wait,
        deadline_ns_min=tenant.shortest_deadline,
    )
    return Identity(tenant.name, allowance, tenant.length_mode)
