CREATE TABLE numbers (n INT, r INT) WITH (
    'connector' = 'datagen',
    'seed' = '7',
    'number-of-rows' = '20',
    'rows-at-start' = '20',
    'fields.n.kind' = 'sequence',
    'fields.n.start' = '1',
    'fields.n.end' = '20'
);
CREATE TABLE drawn (n INT, r INT) WITH ('connector' = 'delta');
INSERT INTO drawn SELECT n, r FROM numbers;
