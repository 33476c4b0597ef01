CREATE TABLE clicks (
    id INT,
    item STRING,
    price INT,
    weight INT
) WITH (
    'connector' = 'filesystem',
    'path' = 'clicks',
    'format' = 'csv'
);

CREATE TABLE sold (id INT, price INT) WITH ('connector' = 'delta', 'insert.id' = 'sales');
CREATE TABLE items (id INT, item STRING) WITH ('connector' = 'delta');

INSERT INTO sold SELECT id, price FROM clicks;
INSERT INTO items SELECT id, item FROM clicks;
