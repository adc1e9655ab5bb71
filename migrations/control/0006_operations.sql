-- The cluster of an operation that is about a cluster and not about a domain.

alter table operations.operations add column cluster_id uuid;
create index operations_clusters on operations.operations (cluster_id)
    where cluster_id is not null and state in ('pending', 'running');
create index operations_domain on operations.operations (domain, id) where domain is not null;
