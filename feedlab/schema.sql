-- The truth. Everything in Redis can be made again from these tables; nothing here can be made from Redis.
-- Applied into one schema (the namespace, by search_path); applying it twice is harmless.

create table if not exists schema_version (version int not null);

-- pull flag and follower count are kept beside, not in, this row: a celebrity's row must not be hot (F12).
create table if not exists users (
    id   bigint primary key,
    name text not null
);

-- created_at_ms, not a timestamptz: a cursor in milliseconds over a column in microseconds skips rows.
create table if not exists posts (
    id            bigint primary key,                      -- Snowflake; also: hydrate and filter a page by id
    author_id     bigint  not null references users (id),
    created_at_ms bigint  not null check (created_at_ms between 0 and 9007199254740992),   -- 2^53, a double's limit
    content       text    not null,
    images        text[]  not null default '{}',
    deleted       boolean not null default false
);

-- the N newest of an author below a cursor (pull.newest, pull.page): one range, already in order, ties by id
create index if not exists posts_author_newest on posts (author_id, created_at_ms desc, id desc) where not deleted;

-- primary key: whom do I follow (pull.page, the read filter). No foreign key to users: it would lock the
-- followee's users row at each follow, and a celebrity's row would be hot again (F12); follows.follow checks instead.
create table if not exists follows (
    follower_id bigint not null,
    followee_id bigint not null,
    created_at  timestamptz not null default now(),
    primary key (follower_id, followee_id),
    check (follower_id <> followee_id)
);

-- who follows me, by keyset `follower_id > last` (fan-out lives on it)
create index if not exists follows_followee on follows (followee_id, follower_id);

-- who was here in the last 30 days (joined by the follower query)
create table if not exists user_activity (
    user_id      bigint primary key,
    last_seen_at timestamptz not null default now()
) with (fillfactor = 80);                                  -- room for HOT updates

-- follower counts without a hot row: a change goes to one of 16 rows, the count is their sum (F12).
-- Each change is `n = n + 1` in the transaction of the follow itself, so that none is lost.
create table if not exists follower_counts (
    user_id bigint   not null,
    shard   smallint not null,
    n       bigint   not null,
    primary key (user_id, shard)
) with (fillfactor = 80);

-- the pull flag (F2): raised = newest posts may be missing from feeds, readers pull this author.
-- pulls counts the posts that were not pushed; a demotion clears the flag only if it has not moved meanwhile.
create table if not exists pull_flags (
    author_id bigint  primary key,
    raised    boolean not null default true,
    pulls     bigint  not null default 1
);

-- transactional outbox. slice: one relay at a time works on a slice of keys, so that an author's events stay in order.
create table if not exists outbox (
    id         bigint generated always as identity primary key,
    topic      text        not null,
    key        bigint      not null,
    payload    text        not null,
    created_at timestamptz not null default clock_timestamp(),
    slice      smallint generated always as ((key & 15)::smallint) stored
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);   -- a queue: vacuum by count, not share

-- the oldest rows of the slices that a relay holds (relay.once)
create index if not exists outbox_slice on outbox (slice, id);

-- a client's Idempotency-Key and the post that it made, written in one transaction with the post (api)
create table if not exists idempotency_keys (
    user_id bigint not null,
    key     text   not null,
    digest  text   not null,                               -- of the request: the same key with another text is refused
    post_id bigint not null,
    primary key (user_id, key)
);

-- knobs that may be moved while everything runs; read by the consumer at each batch
create table if not exists knobs (
    name  text primary key,
    value bigint not null
);

-- each process that makes ids takes the next node number
create sequence if not exists snowflake_node;
