CREATE TABLE clicks (
    item STRING,
    price INT,
    at BIGINT,
    clicked AS TO_TIMESTAMP_LTZ(at, 3),
    WATERMARK FOR clicked AS clicked
) WITH (
    'connector' = 'filesystem',
    'path' = 'clicks',
    'format' = 'json'
);
CREATE TABLE sums (item STRING, n BIGINT, price INT) WITH ('connector' = 'delta');

INSERT INTO sums
SELECT item, COUNT(*), SUM(price)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(clicked), INTERVAL '1' MINUTE))
WHERE price > 0
GROUP BY window_start, window_end, item;
