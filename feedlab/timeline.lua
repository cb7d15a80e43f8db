#!lua name=feedlab
-- A timeline is one sorted set: members are post ids in 19 digits, scores are created-at milliseconds, plus one *state*
-- member that is always rank 0, because every entry lies strictly above its score:
--   "floor"     score = the floor: every post newer than it is here; at or below it, ask SQL
--   "b:<token>" score = the newest entry cut so far: the timeline is being built by the holder of the token
-- State and entries share the key, so that eviction, expiry and FLUSHALL take both or neither.
-- ("f" and "b" sort after digits: among equal scores, entries come first.)

local INF = 1 / 0                     -- the library math is not there while a function library loads

local function number(score)          -- tonumber('-inf') is not portable over C libraries
  if score == '-inf' then return -INF end
  if score == 'inf' or score == '+inf' then return INF end
  return tonumber(score)
end

local function text(score)
  if score == -INF then return '-inf' end
  return string.format('%d', score)
end

-- raise the floor to `score` and remove what is at or below it
local function raise(key, state, score)
  redis.call('ZADD', key, text(score), state)
  local rank = redis.call('ZRANK', key, state)
  if rank > 0 then redis.call('ZREMRANGEBYRANK', key, 0, rank - 1) end
end

-- keep the newest `max` entries; the floor becomes the newest entry that was cut. `size` counts the state member too.
local function trim(key, state, size, max)
  local cut = size - 1 - max
  if cut > 0 then
    raise(key, state, number(redis.call('ZRANGE', key, cut, cut, 'WITHSCORES')[2]))
    return cut
  end
  return 0
end

-- The consumer's place in its partition lives beside the effects and moves in the same call. When the place is not the
-- one the caller left, Redis lost writes or another consumer has taken over: refuse, and say where it is.
local function guard(progress, field, expected)
  return (redis.call('HGET', progress, field) or '') == expected
end

local function done(progress, field, next, stats, counts)
  redis.call('HSET', progress, field, next)
  for name, n in pairs(counts) do
    if n > 0 then redis.call('HINCRBY', stats, name, n) end
  end
  return {1, counts.deliveries or 0, counts.added or 0}
end

-- deliver: KEYS progress, stats, trace, timeline...
--          ARGV field, expected, next, counter, max, slack, floor | '', trace seconds, place, counted as, then (member, ms)...
-- Adds each entry to each timeline that exists and whose floor lies below it. Safe to repeat and to reorder.
local function deliver(keys, args)
  local progress, stats, trace = keys[1], keys[2], keys[3]
  if not guard(progress, args[1], args[2]) then return {0, redis.call('HGET', progress, args[1]) or ''} end
  local max, limit = tonumber(args[5]), tonumber(args[5]) + tonumber(args[6])
  local floor, first, last = args[7], 11, #args
  local c = {deliveries = 0, added = 0, missing = 0, below = 0, trimmed = 0}
  for k = 4, #keys do
    local key = keys[k]
    local state = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    for a = first, last, 2 do
      local ms = args[a + 1]
      c.deliveries = c.deliveries + 1
      if #state == 0 then
        c.missing = c.missing + 1                 -- its reader will rebuild it from SQL (F3)
      elseif tonumber(ms) <= number(state[2]) then
        c.below = c.below + 1                     -- SQL answers for it
      elseif redis.call('ZADD', key, ms, args[a]) == 1 then
        c.added = c.added + 1
        local size = redis.call('ZCARD', key)
        if size - 1 > limit then
          c.trimmed = c.trimmed + trim(key, state[1], size, max)
          state = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
        end
      end
    end
    if floor ~= '' and #state > 0 and tonumber(floor) > number(state[2]) then
      raise(key, state[1], tonumber(floor))
    end
  end
  if args[10] ~= 'deliveries' then c = {[args[10]] = c.added} end     -- not feed writes: a celebrity's own timeline, a demotion
  if args[4] ~= '' then c[args[4]] = 1 end
  local seconds = tonumber(args[8])
  if seconds > 0 and (c.added or 0) == 0 and args[10] == 'deliveries' then
    -- nothing was written, so there is no time at which it was; but where it was decided is known
    redis.call('HSETNX', trace, 'place', args[9])
    redis.call('HSETNX', trace, 'decision', args[4])
    redis.call('HINCRBY', trace, 'deliveries', c.deliveries)
    redis.call('EXPIRE', trace, seconds)
  elseif seconds > 0 then
    local t = redis.call('TIME')
    local now = t[1] * 1000 + math.floor(t[2] / 1000)
    redis.call('HSETNX', trace, 'first_ms', text(now))
    redis.call('HSETNX', trace, 'place', args[9])              -- of the post's own record, not of its slices
    redis.call('HSETNX', trace, 'decision', args[4])
    redis.call('HSET', trace, 'last_ms', text(now))
    redis.call('HINCRBY', trace, 'deliveries', c.deliveries or 0)
    redis.call('EXPIRE', trace, seconds)
  end
  return done(progress, args[1], args[3], stats, c)
end

-- remove: KEYS progress, stats, timeline...; ARGV field, expected, next, counter, member. The floor stays: less is still complete.
local function remove(keys, args)
  if not guard(keys[1], args[1], args[2]) then return {0, redis.call('HGET', keys[1], args[1]) or ''} end
  local removed = 0
  for k = 3, #keys do removed = removed + redis.call('ZREM', keys[k], args[5]) end
  local c = {removed = removed}
  if args[4] ~= '' then c[args[4]] = 1 end
  return done(keys[1], args[1], args[3], keys[2], c)
end

-- drop: KEYS progress, stats, timeline...; ARGV field, expected, next, counter. Also moves the place alone, with no timeline.
local function drop(keys, args)
  if not guard(keys[1], args[1], args[2]) then return {0, redis.call('HGET', keys[1], args[1]) or ''} end
  for k = 3, #keys do redis.call('UNLINK', keys[k]) end
  local c = {}
  if args[4] ~= '' then c[args[4]] = 1 end
  return done(keys[1], args[1], args[3], keys[2], c)
end

-- adopt: KEYS progress; ARGV mark, then (field, expected, next)... All places are set, or none.
local function adopt(keys, args)
  local whole = redis.call('HDEL', keys[1], args[1]) == 1
  for a = 2, #args, 3 do whole = whole and guard(keys[1], args[a], args[a + 1]) end
  if not whole then return 0 end
  for a = 2, #args, 3 do redis.call('HSET', keys[1], args[a], args[a + 2]) end
  return 1
end

-- begin: KEYS timeline; ARGV token, milliseconds to live. 1 when the caller is now its builder.
local function begin(keys, args)
  if redis.call('EXISTS', keys[1]) == 1 then return 0 end
  redis.call('ZADD', keys[1], '-inf', 'b:' .. args[1])
  redis.call('PEXPIRE', keys[1], args[2])
  return 1
end

-- complete: KEYS timeline; ARGV token, floor, max, expires at (epoch ms), then (member, ms)...
-- What was delivered while SQL was read is there already; what was cut meanwhile lifts the floor.
local function complete(keys, args)
  local key, state = keys[1], redis.call('ZRANGE', keys[1], 0, 0, 'WITHSCORES')
  if state[1] ~= 'b:' .. args[1] then return 0 end
  local floor = math.max(number(args[2]), number(state[2]))
  for a = 5, #args, 200 do          -- a hundred entries a call, not one: a rebuild of 500 is half a millisecond shorter
    local last, rows = math.min(a + 199, #args), {}
    for i = a, last, 2 do rows[i - a + 1], rows[i - a + 2] = args[i + 1], args[i] end
    redis.call('ZADD', key, unpack(rows))
  end
  redis.call('ZADD', key, text(floor), 'floor')     -- before the state goes: an empty key would lose its expiry
  redis.call('ZREM', key, state[1])
  raise(key, 'floor', floor)
  trim(key, 'floor', redis.call('ZCARD', key), tonumber(args[3]))
  redis.call('PEXPIREAT', key, args[4])
  return 1
end

-- touch: KEYS timeline; ARGV expires at (epoch ms). A half-built timeline keeps its short life.
local function touch(keys, args)
  if redis.call('ZRANGE', keys[1], 0, 0)[1] == 'floor' then return redis.call('PEXPIREAT', keys[1], args[1]) end
  return 0
end

-- read: KEYS timeline; ARGV cursor ms, cursor member, n. -> {} or {state, floor, more, member, ms, member, ms, ...}
-- Up to n entries strictly below the cursor, newest first. Works by rank: ties need no special case (F1).
local function read(keys, args)
  local key, state = keys[1], redis.call('ZRANGE', keys[1], 0, 0, 'WITHSCORES')
  if #state == 0 then return {} end
  local n, ms = tonumber(args[3]), tonumber(args[1])
  local answer = {state[1], state[2], 0}
  if string.sub(state[1], 1, 2) == 'b:' then return answer end
  local at = redis.call('ZCOUNT', key, '(' .. args[1], '+inf')
  while true do
    local rows = redis.call('ZRANGE', key, at, at + n, 'REV', 'WITHSCORES')
    for i = 1, #rows, 2 do
      if rows[i] == 'floor' then return answer end
      if tonumber(rows[i + 1]) < ms or rows[i] < args[2] then
        if #answer == 3 + 2 * n then answer[3] = 1; return answer end
        answer[#answer + 1] = rows[i]
        answer[#answer + 1] = rows[i + 1]
      end
    end
    if #rows == 0 then return answer end
    at = at + n + 1
  end
end

redis.register_function('feedlab_deliver', deliver)
redis.register_function('feedlab_remove', remove)
redis.register_function('feedlab_drop', drop)
redis.register_function('feedlab_adopt', adopt)
redis.register_function('feedlab_begin', begin)
redis.register_function('feedlab_complete', complete)
redis.register_function('feedlab_touch', touch)
redis.register_function{function_name = 'feedlab_read', callback = read, flags = {'no-writes'}}
