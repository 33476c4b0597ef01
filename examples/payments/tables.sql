-- Orders, and their payments, as they come, one JSON object a line; `time` is in ms, UTC.
CREATE TABLE orders (order_id BIGINT, amount BIGINT, `time` BIGINT) WITH (
    'connector' = 'filesystem',
    'path' = 'orders',
    'format' = 'json'
);

CREATE TABLE payments (order_id BIGINT, paid BIGINT, `time` BIGINT) WITH (
    'connector' = 'filesystem',
    'path' = 'payments',
    'format' = 'json'
);

CREATE TABLE order_states (order_id BIGINT, state STRING, open_amount BIGINT, `time` BIGINT) WITH (
    'connector' = 'print'
);
