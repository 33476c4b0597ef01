-- Readings of sensors, and limits as somebody sets them, one JSON object a line.
CREATE TABLE readings (sensor STRING, kind STRING, reading BIGINT) WITH (
    'connector' = 'filesystem',
    'path' = 'readings',
    'format' = 'json'
);

CREATE TABLE limits (kind STRING, least BIGINT, greatest BIGINT) WITH (
    'connector' = 'filesystem',
    'path' = 'limits',
    'format' = 'json'
);

CREATE TABLE alarms (sensor STRING, reading BIGINT, what STRING, alarms_so_far BIGINT) WITH ('connector' = 'print');
