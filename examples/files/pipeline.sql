-- Clicks of a folder, joined to users who come from two: a dump of all of them, then changes.
CREATE TABLE user_dump (
    user_id INT,
    gender STRING
) WITH (
    'connector' = 'filesystem',
    'path' = 'users',
    'format' = 'csv'
);

CREATE TABLE user_changes (
    user_id INT,
    gender STRING
) WITH (
    'connector' = 'filesystem',
    'path' = 'changes',
    'format' = 'changelog-json'
);

CREATE TABLE user_info (
    user_id INT PRIMARY KEY NOT ENFORCED,
    gender STRING
) WITH (
    'connector' = 'hybrid',
    'hybrid.sources' = 'user_dump, user_changes'
);

CREATE TABLE click_event (
    user_id INT,
    item_id INT,
    file STRING METADATA FROM 'file.name',
    proctime AS PROCTIME()
) WITH (
    'connector' = 'filesystem',
    'path' = 'clicks',
    'format' = 'json'
);

CREATE TABLE clicks_with_gender (
    item_id INT,
    gender STRING,
    file STRING
) WITH (
    'connector' = 'print',
    'gate.on-unmatched' = 'publish'
);

INSERT INTO clicks_with_gender
SELECT c.item_id, u.gender, c.file
FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id;
