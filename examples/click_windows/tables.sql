-- Clicks of users, one JSON object a line; `time` is in ms, UTC.
CREATE TABLE clicks (user_id STRING, item STRING, `time` BIGINT) WITH (
    'connector' = 'filesystem',
    'path' = 'clicks',
    'format' = 'json'
);

CREATE TABLE clicks_5min (user_id STRING, `start` BIGINT, `end` BIGINT, clicks BIGINT) WITH ('connector' = 'print');
CREATE TABLE late_clicks (user_id STRING, item STRING, `time` BIGINT)
    WITH ('connector' = 'print', 'print-identifier' = 'late');
CREATE TABLE visits (user_id STRING, `start` BIGINT, `end` BIGINT, items MAP<STRING, BIGINT>)
    WITH ('connector' = 'print');
CREATE TABLE late_visits (user_id STRING, item STRING, `time` BIGINT)
    WITH ('connector' = 'print', 'print-identifier' = 'late');
