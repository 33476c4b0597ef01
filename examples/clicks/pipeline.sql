-- Clicks, each with the gender of its user: FLIP-326's example, ready to run.
-- user_info may still be loading while clicks arrive; none of them leaves before it is proved complete.

-- The build side (a dimension table): a snapshot in parallel chunks, then the binlog.
CREATE TEMPORARY TABLE user_info (
    user_id INTEGER PRIMARY KEY NOT ENFORCED,
    gender STRING
) WITH (
    'connector' = 'mysql-cdc',
    'hostname' = '${MYSQL_HOST}',
    'port' = '${MYSQL_PORT}',
    'username' = '${MYSQL_USER}',
    'password' = '${MYSQL_PASSWORD}',
    'database-name' = 'example_database',
    'table-name' = 'user_info'
);

-- The probe side (a fact table): many clicks are there at once, then a thousand a second.
-- Some name a user who is not in the table, a few name none.
CREATE TEMPORARY TABLE click_event (
    user_id INTEGER,
    item_id INTEGER,
    proctime AS PROCTIME()
) WITH (
    'connector' = 'datagen',
    'rows-at-start' = '${CLICKS_AT_START}',
    'rows-per-second' = '1000',
    'fields.user_id.min' = '1',
    'fields.user_id.max' = '${GREATEST_USER_ID}',
    'fields.user_id.null-rate' = '0.001',
    'fields.item_id.min' = '1',
    'fields.item_id.max' = '10000'
);

-- The target. A click without a user is not published with a NULL: it is quarantined, with the reason.
CREATE TEMPORARY TABLE enriched_click (
    user_id INTEGER,
    item_id INTEGER,
    gender STRING
) WITH (
    'connector' = 'delta',
    'gate.on-unmatched' = 'quarantine'
);

-- Processing time temporal join
INSERT INTO enriched_click
SELECT click_event.user_id AS user_id, item_id, gender FROM click_event
LEFT JOIN user_info FOR SYSTEM_TIME AS OF click_event.proctime
ON click_event.user_id = user_info.user_id;
