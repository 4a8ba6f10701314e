package dns

import (
	"hash/maphash"
	"maps"
)

// shardCount is how many parts a table has; a change copies the parts that it touches.
const shardCount = 512

// table is a persistent map: an edit gives a new table and leaves the old one as
// it was, so that readers need no lock and a change costs what it changes.
type table[K comparable, V any] struct {
	seed   maphash.Seed
	shards [shardCount]map[K]V
}

func newTable[K comparable, V any]() *table[K, V] {
	return &table[K, V]{seed: maphash.MakeSeed()}
}

func (t *table[K, V]) shard(key K) int {
	return int(maphash.Comparable(t.seed, key) % shardCount)
}

func (t *table[K, V]) get(key K) (V, bool) {
	v, ok := t.shards[t.shard(key)][key]
	return v, ok
}

// all calls yield for every entry, in no order.
func (t *table[K, V]) all(yield func(K, V) bool) {
	for _, shard := range t.shards {
		for k, v := range shard {
			if !yield(k, v) {
				return
			}
		}
	}
}

// edit is a table in the making.
type edit[K comparable, V any] struct {
	*table[K, V]
	owned [shardCount]bool // copied already
}

func (t *table[K, V]) edit() *edit[K, V] {
	fresh := *t
	return &edit[K, V]{table: &fresh}
}

func (e *edit[K, V]) own(i int) map[K]V {
	if !e.owned[i] {
		e.owned[i] = true
		e.shards[i] = maps.Clone(e.shards[i])
	}
	if e.shards[i] == nil {
		e.shards[i] = map[K]V{}
	}
	return e.shards[i]
}

func (e *edit[K, V]) set(key K, v V) { e.own(e.shard(key))[key] = v }

func (e *edit[K, V]) remove(key K) { delete(e.own(e.shard(key)), key) }
