package pgsession

// LockClass is the first key of the advisory lock on a partition; the second key is the partition
// number. The session that holds the lock owns the partition.
const LockClass = 0x62616467 // "badg"

// MemberClass is the first key of the advisory locks by which projectors count each other. Each
// projector's session holds one such lock; the second key is the pid of the session.
const MemberClass = 0x6261646d // "badm"

// TakeSQL acquires the locks of up to $3 free partitions of the list $1. It tries one partition
// after the other and stops when it has $3 locks. $2 is the first key of the locks.
const TakeSQL = `SELECT p FROM unnest($1::int[]) AS p WHERE pg_try_advisory_lock($2, p) LIMIT $3`

// OwnerSQL finds the session that holds the lock with the first key $1 on partition $2.
const OwnerSQL = `SELECT a.pid, a.application_name
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = $1 AND l.objid = $2`
