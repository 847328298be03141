//! CEL rules on the embedded platform objects, equal to the reference's rules to the letter.

use crate::schema::Rule;

pub(super) const DNS_PLATFORM_SPEC: &[Rule] = &[Rule::new(
    "has(self.type) && self.type == 'AWS' ?  has(self.aws) : !has(self.aws)",
    "aws configuration is required when platform is AWS, and forbidden otherwise",
)];

pub(super) const DNS_PLATFORM_TYPES: &[Rule] =
    &[Rule::new("self in ['','AWS']", "allowed values are '' and 'AWS'")];

pub(super) const AWS_DNS_SPEC_PRIVATE_ZONE_IAM_ROLE: &[Rule] = &[Rule::new(
    "matches(self, '^arn:(aws|aws-cn|aws-us-gov):iam::[0-9]{12}:role/.*$')",
    "privateZoneIAMRole must be a valid AWS IAM role ARN in the format: arn:<partition>:iam::<account-id>:role/<role-name>",
)];

pub(super) const PLATFORM_SPEC: &[Rule] = &[Rule::new(
    "!has(oldSelf.vsphere) && has(self.vsphere) ? (has(self.vsphere.vcenters) && size(self.vsphere.vcenters) < 2) : true",
    "vcenters can have at most 1 item when configured post-install",
)];

pub(super) const ADDRESSES_ARE_REQUIRED_ONCE_SET: &[Rule] = &[
    Rule::new(
        "!has(oldSelf.apiServerInternalIPs) || has(self.apiServerInternalIPs)",
        "apiServerInternalIPs list is required once set",
    ),
    Rule::new(
        "!has(oldSelf.ingressIPs) || has(self.ingressIPs)",
        "ingressIPs list is required once set",
    ),
];

pub(super) const API_ADDRESS_FAMILIES: &[Rule] = &[Rule::new(
    "size(self) == 2 && isIP(self[0]) && isIP(self[1]) ? ip(self[0]).family() != ip(self[1]).family() : true",
    "apiServerInternalIPs must contain at most one IPv4 address and at most one IPv6 address",
)];

pub(super) const INGRESS_ADDRESS_FAMILIES: &[Rule] = &[Rule::new(
    "size(self) == 2 && isIP(self[0]) && isIP(self[1]) ? ip(self[0]).family() != ip(self[1]).family() : true",
    "ingressIPs must contain at most one IPv4 address and at most one IPv6 address",
)];

pub(super) const DISTINCT_NETWORKS: &[Rule] =
    &[Rule::new("self.all(x, self.exists_one(y, x == y))", "")];

pub(super) const EXTERNAL_PLATFORM_SPEC_PLATFORM_NAME: &[Rule] = &[Rule::new(
    "oldSelf == 'Unknown' || self == oldSelf",
    "platform name cannot be changed once set",
)];

pub(super) const NUTANIX_IDENTIFIER: &[Rule] = &[
    Rule::new(
        "has(self.type) && self.type == 'UUID' ?  has(self.uuid) : !has(self.uuid)",
        "uuid configuration is required when type is UUID, and forbidden otherwise",
    ),
    Rule::new(
        "has(self.type) && self.type == 'Name' ?  has(self.name) : !has(self.name)",
        "name configuration is required when type is Name, and forbidden otherwise",
    ),
];

pub(super) const DISTINCT_VCENTERS: &[Rule] = &[Rule::new(
    "self.all(x, self.exists_one(y, y.server == x.server))",
    "vcenters must have unique server values",
)];

pub(super) const VSPHERE_FAILURE_DOMAIN: &[Rule] = &[
    Rule::new(
        "has(self.zoneAffinity) && self.zoneAffinity.type == 'HostGroup' ?  has(self.regionAffinity) && self.regionAffinity.type == 'ComputeCluster' : true",
        "when zoneAffinity type is HostGroup, regionAffinity type must be ComputeCluster",
    ),
    Rule::new(
        "has(self.zoneAffinity) && self.zoneAffinity.type == 'ComputeCluster' ?  has(self.regionAffinity) && self.regionAffinity.type == 'Datacenter' : true",
        "when zoneAffinity type is ComputeCluster, regionAffinity type must be Datacenter",
    ),
];

pub(super) const VSPHERE_ZONE_AFFINITY: &[Rule] = &[Rule::new(
    "has(self.type) && self.type == 'HostGroup' ?  has(self.hostGroup) : !has(self.hostGroup)",
    "hostGroup is required when type is HostGroup, and forbidden otherwise",
)];

pub(super) const API_ADDRESS_FAMILIES_IF_CHANGED: &[Rule] = &[Rule::new(
    "self == oldSelf || (size(self) == 2 && isIP(self[0]) && isIP(self[1]) ? ip(self[0]).family() != ip(self[1]).family() : true)",
    "apiServerInternalIPs must contain at most one IPv4 address and at most one IPv6 address",
)];

pub(super) const INGRESS_ADDRESS_FAMILIES_IF_CHANGED: &[Rule] = &[Rule::new(
    "self == oldSelf || (size(self) == 2 && isIP(self[0]) && isIP(self[1]) ? ip(self[0]).family() != ip(self[1]).family() : true)",
    "ingressIPs must contain at most one IPv4 address and at most one IPv6 address",
)];

pub(super) const LOAD_BALANCER_TYPE_IS_IMMUTABLE: &[Rule] =
    &[Rule::new("oldSelf == '' || self == oldSelf", "type is immutable once set")];

pub(super) const EXTERNAL_PLATFORM_STATUS: &[Rule] = &[Rule::new(
    "has(self.cloudControllerManager) == has(oldSelf.cloudControllerManager)",
    "cloudControllerManager may not be added or removed once set",
)];

pub(super) const CLOUD_CONTROLLER_MANAGER_STATUS: &[Rule] = &[Rule::new(
    r#"(has(self.state) == has(oldSelf.state)) || (!has(oldSelf.state) && self.state != "External")"#,
    "state may not be added or removed once set",
)];

pub(super) const CLOUD_CONTROLLER_MANAGER_STATUS_STATE: &[Rule] =
    &[Rule::new("self == oldSelf", "state is immutable once set")];

pub(super) const IP_FAMILY_IS_IMMUTABLE: &[Rule] =
    &[Rule::new("oldSelf == '' || self == oldSelf", "ipFamily is immutable once set")];

pub(super) const CLOUD_LOAD_BALANCER_CONFIG: &[Rule] = &[Rule::new(
    "has(self.dnsType) && self.dnsType != 'ClusterHosted' ? !has(self.clusterHosted) : true",
    "clusterHosted is permitted only when dnsType is ClusterHosted",
)];

pub(super) const DNS_TYPE_IS_IMMUTABLE: &[Rule] =
    &[Rule::new("oldSelf == '' || self == oldSelf", "dnsType is immutable")];

pub(super) const AWS_TAG_KEY: &[Rule] = &[Rule::new(
    "self.matches('^[0-9A-Za-z_.:/=+-@ ]+$')",
    "invalid AWS resource tag key. The string can contain only the set of alphanumeric characters, space (' '), '_', '.', '/', '=', '+', '-', ':', '@'",
)];

pub(super) const AWS_TAG_VALUE: &[Rule] = &[Rule::new(
    "self.matches('^[0-9A-Za-z_.:/=+-@ ]+$')",
    "invalid AWS resource tag value. The string can contain only the set of alphanumeric characters, space (' '), '_', '.', '/', '=', '+', '-', ':', '@'",
)];

pub(super) const AZURE_PLATFORM_STATUS: &[Rule] = &[Rule::new(
    "!has(oldSelf.resourceTags) && !has(self.resourceTags) || has(oldSelf.resourceTags) && has(self.resourceTags)",
    "resourceTags may only be configured during installation",
)];

pub(super) const TAGS_ARE_IMMUTABLE: &[Rule] = &[Rule::new(
    "self.all(x, x in oldSelf) && oldSelf.all(x, x in self)",
    "resourceTags are immutable and may only be configured during installation",
)];

pub(super) const GCP_PLATFORM_STATUS: &[Rule] = &[
    Rule::new(
        "!has(oldSelf.resourceLabels) && !has(self.resourceLabels) || has(oldSelf.resourceLabels) && has(self.resourceLabels)",
        "resourceLabels may only be configured during installation",
    ),
    Rule::new(
        "!has(oldSelf.resourceTags) && !has(self.resourceTags) || has(oldSelf.resourceTags) && has(self.resourceTags)",
        "resourceTags may only be configured during installation",
    ),
];

pub(super) const LABELS_ARE_IMMUTABLE: &[Rule] = &[Rule::new(
    "self.all(x, x in oldSelf) && oldSelf.all(x, x in self)",
    "resourceLabels are immutable and may only be configured during installation",
)];

pub(super) const GCP_LABEL_KEY: &[Rule] = &[Rule::new(
    "!self.startsWith('openshift-io') && !self.startsWith('kubernetes-io')",
    "label keys must not start with either `openshift-io` or `kubernetes-io`",
)];

pub(super) const IBM_CLOUD_SERVICE_ENDPOINT_URL: &[Rule] =
    &[Rule::new("isURL(self)", "url must be a valid absolute URL")];

pub(super) const POWER_VS_PLATFORM_STATUS: &[Rule] = &[Rule::new(
    "!has(oldSelf.resourceGroup) || has(self.resourceGroup)",
    "cannot unset resourceGroup once set",
)];

pub(super) const POWER_VS_PLATFORM_STATUS_RESOURCE_GROUP: &[Rule] =
    &[Rule::new("oldSelf == '' || self == oldSelf", "resourceGroup is immutable once set")];
