#!/bin/sh
# Prints reconciler.yaml from the chart: render.sh [CHART]. make verify-release compares them.
here=$(dirname "$0")
"${HELM:-helm}" template hawser "${1:-$here/../../charts/hawser-reconciler}" -n hawser-reconciler \
  --set 'repo=$(HAWSER_REPO),ref=$(HAWSER_REF),path=$(HAWSER_PATH),gitCA.configMap=hawser-git-ca,gitCA.optional=true' \
  --set-json 'envFrom=[{"configMapRef":{"name":"hawser-reconciler"}}]' \
  --set-json 'env=[{"name":"HAWSER_GIT_TOKEN","valueFrom":{"secretKeyRef":{"name":"hawser-git","key":"token","optional":true}}},
    {"name":"HAWSER_GIT_USERNAME","valueFrom":{"secretKeyRef":{"name":"hawser-git","key":"username","optional":true}}}]' \
  | sed '/^# Source: /d'
