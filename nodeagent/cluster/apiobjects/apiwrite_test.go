package apiobjects

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"

	"hawser.dev/hawser/schema/fabric"
)

func (s *apiServer) patch(r request, kind string, body []byte, force bool) (any, error) {
	s.writes = append(s.writes, strings.TrimSuffix("patch "+r.key()+" "+r.sub, " "))
	patch := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &patch.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.lacks != "" && strings.Contains(string(body), s.lacks) {
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to create typed patch object: .status.%s: field not declared in schema", s.lacks))
	}
	live, there := s.objects[r.key()]
	if err := s.admit(r, live, there, patch, kind); err != nil {
		return nil, err
	}
	if !there {
		live = &unstructured.Unstructured{Object: map[string]any{"apiVersion": patch.GetAPIVersion(), "kind": patch.GetKind()}}
	}
	var after *unstructured.Unstructured
	var err error
	if kind == string(types.MergePatchType) {
		after = live.DeepCopy()
		mergeInto(after.Object, patch.Object)
		after.SetUID(live.GetUID())
	} else if after, err = apply(r, live, patch, force); err != nil {
		return nil, err
	}
	return s.store(r, live, after, there), nil
}

// admit returns an error for a patch that the API server would reject.
func (s *apiServer) admit(r request, live *unstructured.Unstructured, there bool, patch *unstructured.Unstructured, kind string) error {
	group := r.GroupResource()
	switch {
	case !there && (r.sub != "" || kind == string(types.MergePatchType)):
		return apierrors.NewNotFound(group, r.name)
	case !there && s.ending[r.namespace]:
		err := apierrors.NewForbidden(group, r.name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", r.namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
		return err
	case !there && r.namespace != "" && s.objects["namespaces /"+r.namespace] == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.namespace)
	case patch.GetUID() != "" && (!there || live.GetUID() != patch.GetUID()):
		return apierrors.NewConflict(group, r.name, fmt.Errorf("uid mismatch"))
	case there && patch.GetResourceVersion() != "" && patch.GetResourceVersion() != live.GetResourceVersion():
		return apierrors.NewConflict(group, r.name, fmt.Errorf("the object has been modified"))
	}
	return nil
}

func apply(r request, live, patch *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	// A manager name for each subresource has the same result as the API server's managers with
	// a subresource.
	by := fabric.FieldManager + map[bool]string{true: " " + r.sub}[r.sub != ""]
	fields := managedfieldstest.NewFakeFieldManager(managedfields.NewDeducedTypeConverter(), live.GroupVersionKind())
	patch = patch.DeepCopy()
	patch.SetUID("")
	after, err := fields.Apply(live, patch, by, force)
	if err != nil {
		return nil, err
	}
	return after.(*unstructured.Unstructured), nil
}

func mergeInto(object, patch map[string]any) {
	for key, value := range patch {
		inner, is := value.(map[string]any)
		have, has := object[key].(map[string]any)
		switch {
		case value == nil:
			delete(object, key)
		case is && has:
			mergeInto(have, inner)
		case is:
			object[key] = map[string]any{}
			mergeInto(object[key].(map[string]any), inner)
		default:
			object[key] = value
		}
	}
}

func (s *apiServer) store(r request, live, after *unstructured.Unstructured, there bool) any {
	before, _ := json.Marshal(live.Object)
	now, _ := json.Marshal(after.Object)
	if there && string(before) == string(now) {
		return after.Object
	}
	s.version++
	after.SetResourceVersion(strconv.Itoa(s.version))
	after.SetNamespace(r.namespace)
	after.SetName(r.name)
	if !there {
		after.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
		after.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(s.version), 0)))
	}
	s.objects[r.key()] = after
	s.publishEvent(map[bool]string{true: "MODIFIED", false: "ADDED"}[there], r, after)
	return after.Object
}

func (s *apiServer) remove(r request, options metav1.DeleteOptions) (any, error) {
	s.writes = append(s.writes, "delete "+r.key())
	live := s.objects[r.key()]
	switch {
	case live == nil:
		return nil, apierrors.NewNotFound(r.GroupResource(), r.name)
	case options.Preconditions != nil && options.Preconditions.UID != nil && *options.Preconditions.UID != live.GetUID():
		return nil, apierrors.NewConflict(r.GroupResource(), r.name, fmt.Errorf("uid mismatch"))
	}
	s.version++
	delete(s.objects, r.key())
	gone := live.DeepCopy()
	gone.SetResourceVersion(strconv.Itoa(s.version))
	s.publishEvent("DELETED", r, gone)
	return metav1.Status{Status: metav1.StatusSuccess}, nil
}
