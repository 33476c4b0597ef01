CREATE FUNCTION grade AS 'grading.grade' LANGUAGE PYTHON;
CREATE FUNCTION shouted AS 'grading.shouted' LANGUAGE PYTHON;

CREATE TABLE clicks (
    id INT,
    price INT,
    grade AS grade(price)
) WITH (
    'connector' = 'filesystem',
    'path' = 'clicks',
    'format' = 'json'
);
CREATE TABLE graded (id INT, grade STRING) WITH ('connector' = 'delta');
INSERT INTO graded SELECT id, shouted(grade) FROM clicks;
