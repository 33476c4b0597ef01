CREATE TABLE rates (
    currency STRING,
    rate INT,
    spread INT,
    place STRING,
    at BIGINT,
    announced BIGINT,
    valid_from AS TO_TIMESTAMP_LTZ(at, 3),
    PRIMARY KEY (currency) NOT ENFORCED,
    WATERMARK FOR valid_from AS valid_from
) WITH (
    'connector' = 'filesystem',
    'path' = 'rates',
    'format' = 'json'
);

CREATE TABLE orders (
    id INT,
    currency STRING,
    amount INT,
    buyer STRING,
    at BIGINT,
    paid BIGINT,
    doubled AS amount * 2,
    ordered AS TO_TIMESTAMP_LTZ(at, 3),
    settled AS TO_TIMESTAMP_LTZ(paid, 3),
    WATERMARK FOR ordered AS ordered
) WITH (
    'connector' = 'filesystem',
    'path' = 'orders',
    'format' = 'json'
);

CREATE TABLE converted (
    id INT,
    total INT,
    doubled INT,
    CONSTRAINT small EXPECT (total < 1000) ON VIOLATION QUARANTINE
) WITH (
    'connector' = 'delta',
    'gate.on-unmatched' = 'quarantine'
);

INSERT INTO converted
SELECT o.id, o.amount * r.rate, o.doubled
FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ordered AS r ON o.currency = r.currency
WHERE o.amount > 0;
