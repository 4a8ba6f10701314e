package dns

import (
	"hash/maphash"
	"maps"
)

// shardCount is the number of shards of a map; an edit copies only the shards that it changes.
const shardCount = 512

// persistentMap is a persistent map. An edit returns a new map and does not change the old one. So
// readers need no lock, and an edit costs in proportion to its changes.
type persistentMap[K comparable, V any] struct {
	seed   maphash.Seed
	shards [shardCount]map[K]V
}

func newTable[K comparable, V any]() *persistentMap[K, V] {
	return &persistentMap[K, V]{seed: maphash.MakeSeed()}
}

func (t *persistentMap[K, V]) shard(key K) int {
	return int(maphash.Comparable(t.seed, key) % shardCount)
}

func (t *persistentMap[K, V]) get(key K) (V, bool) {
	v, ok := t.shards[t.shard(key)][key]
	return v, ok
}

// all calls yield for every entry, in any order.
func (t *persistentMap[K, V]) all(yield func(K, V) bool) {
	for _, shard := range t.shards {
		for k, v := range shard {
			if !yield(k, v) {
				return
			}
		}
	}
}

// mapEdit is a persistentMap under construction.
type mapEdit[K comparable, V any] struct {
	*persistentMap[K, V]
	owned [shardCount]bool // already copied
}

func (t *persistentMap[K, V]) edit() *mapEdit[K, V] {
	fresh := *t
	return &mapEdit[K, V]{persistentMap: &fresh}
}

func (e *mapEdit[K, V]) own(i int) map[K]V {
	if !e.owned[i] {
		e.owned[i] = true
		e.shards[i] = maps.Clone(e.shards[i])
	}
	if e.shards[i] == nil {
		e.shards[i] = map[K]V{}
	}
	return e.shards[i]
}

func (e *mapEdit[K, V]) set(key K, v V) { e.own(e.shard(key))[key] = v }

func (e *mapEdit[K, V]) remove(key K) { delete(e.own(e.shard(key)), key) }
