package workload

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Set holds the objects of one cluster. The zero Set is empty and ready to use. It is not safe
// for concurrent use.
type Set struct {
	objects map[Key]Object
}

// Objects returns the objects sorted by kind, namespace and name. Namespaces come first, so that
// the list can be applied in order.
func (s *Set) Objects() []Object {
	return slices.SortedFunc(maps.Values(s.objects), func(a, b Object) int {
		return cmp.Or(cmp.Compare(rank(a.Key.Kind), rank(b.Key.Kind)),
			cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
}

func rank(name string) int {
	return slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name })
}

// Apply adds the objects, or replaces objects with the same key. It applies all or none. It fails
// if the namespace of an object does not exist.
func (s *Set) Apply(objects []Object) error {
	namespaces := map[string]bool{"default": true, "kube-system": true}
	for _, o := range append(s.Objects(), objects...) {
		if o.Namespace != nil {
			namespaces[o.Key.Name] = true
		}
	}
	var errs []error
	for _, o := range objects {
		if o.Key.Namespace != "" && !namespaces[o.Key.Namespace] {
			errs = append(errs, fmt.Errorf("apply %s: no namespace %q: add a Namespace manifest", o.Key, o.Key.Namespace))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if s.objects == nil {
		s.objects = map[Key]Object{}
	}
	for _, o := range objects {
		if before, known := s.objects[o.Key]; known && o.meta().CreationTimestamp.IsZero() {
			o.meta().CreationTimestamp = before.meta().CreationTimestamp
		}
		s.objects[o.Key] = o
	}
	return nil
}

// SetCreationTime sets the creation time of ServiceExports without one, like the API server. If
// several clusters export the same name, the oldest ServiceExport wins.
func SetCreationTime(objects []Object, now time.Time) {
	for _, o := range objects {
		if o.Export != nil && o.Export.CreationTimestamp.IsZero() {
			o.Export.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
		}
	}
}

// Exports returns the ServiceExports sorted by namespace and name.
func (s *Set) Exports() []Object {
	return slices.DeleteFunc(s.Objects(), func(o Object) bool { return o.Export == nil })
}

// Delete removes objects. Deleting a Namespace also removes its objects.
func (s *Set) Delete(keys []Key) error {
	var errs []error
	for _, key := range keys {
		if _, known := s.objects[key]; !known {
			errs = append(errs, fmt.Errorf("delete %s: not found", key))
			continue
		}
		delete(s.objects, key)
		if key.Kind == "Namespace" {
			maps.DeleteFunc(s.objects, func(k Key, _ Object) bool { return k.Namespace == key.Name })
		}
	}
	return errors.Join(errs...)
}

// Scale sets the replicas of a Deployment or StatefulSet.
func (s *Set) Scale(key Key, replicas int32) error {
	object, known := s.objects[key]
	switch {
	case replicas < 0:
		return fmt.Errorf("scale %s: %d replicas", key, replicas)
	case !known:
		return fmt.Errorf("scale %s: not found: see hawser lab status", key)
	case object.Deployment != nil:
		object.Deployment = object.Deployment.DeepCopy() // other sets may share the manifest
		object.Deployment.Spec.Replicas = &replicas
	case object.StatefulSet != nil:
		object.StatefulSet = object.StatefulSet.DeepCopy()
		object.StatefulSet.Spec.Replicas = &replicas
	default:
		return fmt.Errorf("scale %s: only a Deployment or a StatefulSet has replicas", key)
	}
	s.objects[key] = object
	return nil
}

// Services returns the Services sorted by namespace and name.
func (s *Set) Services() []Object {
	return slices.DeleteFunc(s.Objects(), func(o Object) bool { return o.Service == nil })
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}
