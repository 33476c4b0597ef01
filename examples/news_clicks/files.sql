-- News as they are released and clicked, one JSON object a line; `timestamp` is in ms, UTC.
CREATE TABLE news_events (
    type STRING,
    news_id BIGINT,
    `timestamp` BIGINT
) WITH (
    'connector' = 'filesystem',
    'path' = 'news',
    'format' = 'json'
);

CREATE TABLE click_numbers (
    news_id BIGINT,
    time_after_release BIGINT,
    click_number BIGINT
) WITH (
    'connector' = 'print'
);
