package listwatch

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"hawser.dev/hawser/internal/sortedmap"
)

// Cache has the objects of one resource, converted to T. It implements Watch. Objects and Err
// are safe for concurrent use.
type Cache[T any] struct {
	Client    dynamic.Interface
	Resource  schema.GroupVersionResource
	Namespace string // empty = all
	Labels    string // label selector; empty = all
	Fields    string // field selector; empty = all
	// Convert returns the value of an object. If it returns false, the cache ignores the
	// object.
	Convert func(*unstructured.Unstructured) (T, bool)
	// OnChange runs after each change, and must not block. It may be nil.
	OnChange func()

	mu     sync.Mutex
	values sortedmap.Map[T]
	synced bool  // all objects were listed once
	err    error // of the last request
}

// converted is a value of the cache on its way through the reflector.
type converted[T any] struct {
	key   string
	value T
	ok    bool
}

// Run fills the cache until ctx is done. While the API server is unreachable, the cache keeps
// its content.
func (c *Cache[T]) Run(ctx context.Context) { Run(ctx, c.Resource.Resource, c) }

// Objects returns the values, sorted by namespace and name. It returns false until all objects were
// listed once. The caller must not modify the values.
func (c *Cache[T]) Objects() ([]T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values.List(), c.synced
}

// Err returns the error of the last request.
func (c *Cache[T]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// List implements Watch.
func (c *Cache[T]) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector, o.FieldSelector = c.Labels, c.Fields
	return c.Client.Resource(c.Resource).Namespace(c.Namespace).List(ctx, o)
}

// Watch implements Watch.
func (c *Cache[T]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector, o.FieldSelector = c.Labels, c.Fields
	return c.Client.Resource(c.Resource).Namespace(c.Namespace).Watch(ctx, o)
}

// RequestDone implements Watch.
func (c *Cache[T]) RequestDone(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// Transformer implements cache.TransformingStore. The reflector converts the objects of a streamed
// list one by one, so it never holds all unconverted objects in memory.
func (c *Cache[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return c.convert(object), nil }
}

// convert converts an object. It is idempotent, because Replace may receive objects that
// Transformer has converted.
func (c *Cache[T]) convert(object any) converted[T] {
	switch o := object.(type) {
	case converted[T]:
		return o
	case *unstructured.Unstructured:
		value, ok := c.Convert(o)
		return converted[T]{key: Key(o), value: value, ok: ok}
	}
	return converted[T]{}
}

// Add implements cache.ReflectorStore.
func (c *Cache[T]) Add(object any) error { return c.Update(object) }

// Update implements cache.ReflectorStore.
func (c *Cache[T]) Update(object any) error {
	o := c.convert(object)
	c.change(func() { c.put(o) })
	return nil
}

// Delete implements cache.ReflectorStore.
func (c *Cache[T]) Delete(object any) error {
	if o, ok := object.(metav1.Object); ok {
		c.change(func() { c.values.Delete(Key(o)) })
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (c *Cache[T]) Replace(objects []any, _ string) error {
	c.change(func() {
		c.values, c.synced = sortedmap.Map[T]{}, true
		for _, object := range objects {
			c.put(c.convert(object))
		}
	})
	return nil
}

// Resync implements cache.ReflectorStore.
func (c *Cache[T]) Resync() error { return nil }

func (c *Cache[T]) put(o converted[T]) {
	if o.ok {
		c.values.Put(o.key, o.value)
	} else {
		c.values.Delete(o.key)
	}
}

func (c *Cache[T]) change(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	if c.OnChange != nil {
		c.OnChange()
	}
}
