-- Clicks of users, one JSON object a line; `time` is in ms, UTC.
CREATE TABLE clicks (user_id STRING, item STRING, `time` BIGINT) WITH (
    'connector' = 'filesystem',
    'path' = 'clicks',
    'format' = 'json'
);

CREATE TABLE clicks_5min (user_id STRING, `start` BIGINT, `end` BIGINT, clicks BIGINT) WITH ('connector' = 'print');
CREATE TABLE late_clicks (user_id STRING, item STRING, `time` BIGINT)
    WITH ('connector' = 'print', 'print-identifier' = 'late');
-- The same files once more, with their time said in SQL, and windows of SQL: what was clicked how often in 5 minutes.
CREATE TABLE item_clicks (
    item STRING,
    `time` BIGINT,
    rowtime AS TO_TIMESTAMP_LTZ(`time`, 3),
    WATERMARK FOR rowtime AS rowtime - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE items_5min (item STRING, window_start TIMESTAMP(3), clicks BIGINT)
    WITH ('connector' = 'print', 'print-identifier' = 'items');
CREATE TABLE visits (user_id STRING, `start` BIGINT, `end` BIGINT, items MAP<STRING, BIGINT>)
    WITH ('connector' = 'print');
CREATE TABLE late_visits (user_id STRING, item STRING, `time` BIGINT)
    WITH ('connector' = 'print', 'print-identifier' = 'late');

INSERT INTO items_5min
SELECT item, window_start, COUNT(*)
FROM TABLE(TUMBLE(TABLE item_clicks, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES))
GROUP BY window_start, window_end, item;
