-- The same from a topic.
CREATE TABLE news_events (
    type STRING,
    news_id BIGINT,
    `timestamp` BIGINT
) WITH (
    'connector' = 'kafka',
    'topic' = '${NEWS_TOPIC}',
    'properties.bootstrap.servers' = '${KAFKA}',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);

CREATE TABLE click_numbers (
    news_id BIGINT,
    time_after_release BIGINT,
    click_number BIGINT
) WITH (
    'connector' = 'print'
);
