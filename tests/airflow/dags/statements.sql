-- {{ dag.dag_id }}
CREATE TABLE db.{{ params.table }} (id bigint, city string, part string) USING indexed PARTITIONED BY (part)
TBLPROPERTIES (primaryKey = 'id', hoodie.bucket.index.num.buckets = 1);
CREATE INDEX by_city ON db.{{ params.table }} USING secondary_index(city) WITH DEFERRED REBUILD COMMENT 'towns';
