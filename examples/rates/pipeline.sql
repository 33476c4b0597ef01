-- Orders converted at the rate that held when each was placed: an event-time temporal join.
CREATE TABLE currency_rate (
    currency STRING PRIMARY KEY NOT ENFORCED,
    rate DECIMAL(10, 4),
    valid_from TIMESTAMP(3),
    WATERMARK FOR valid_from AS valid_from
) WITH (
    'connector' = 'filesystem',
    'path' = 'rates',
    'format' = 'changelog-json'
);

CREATE TABLE orders (
    order_id INT,
    currency STRING,
    amount DECIMAL(10, 2),
    order_time TIMESTAMP(3),
    WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH (
    'connector' = 'filesystem',
    'path' = 'orders',
    'format' = 'json'
);

CREATE TABLE converted_order (
    order_id INT,
    order_time TIMESTAMP(3),
    currency STRING,
    dollars DECIMAL(12, 2)
) WITH (
    'connector' = 'print'
);

INSERT INTO converted_order
SELECT o.order_id, o.order_time, o.currency, CAST(o.amount * r.rate AS DECIMAL(12, 2))
FROM orders AS o
JOIN currency_rate FOR SYSTEM_TIME AS OF o.order_time AS r ON o.currency = r.currency;
