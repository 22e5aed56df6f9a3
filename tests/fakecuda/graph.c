/* SPDX-License-Identifier: MIT
 *
 * Graphs: a list of operations in the order of their making, which satisfies every dependency,
 * because a node can only depend on nodes that exist.
 */
#include <stdlib.h>

#include "fake.h"

struct graph *graph_new(void) {
  struct graph *graph = calloc(1, sizeof *graph);
  if (!graph) fake_abort("out of memory");
  graph->handle = handle_new(HANDLE_GRAPH, graph);
  return graph;
}

struct node *graph_add(struct graph *graph, struct operation *operation) {
  struct node *node = calloc(1, sizeof *node);
  if (!node) fake_abort("out of memory");
  node->handle = handle_new(HANDLE_NODE, node);
  node->graph = graph;
  node->operation = operation;
  if (graph->last)
    graph->last->next = node;
  else
    graph->first = node;
  graph->last = node;
  return node;
}

void graph_free(struct graph *graph) {
  struct node *next;
  for (struct node *node = graph->first; node; node = next) {
    next = node->next;
    handle_drop(node->handle);
    operation_free(node->operation);
    free(node);
  }
  handle_drop(graph->handle);
  free(graph);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
  ENTER(cuGraphCreate);
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  *graph = graph_new()->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  ENTER(cuGraphDestroy);
  struct graph *graph = handle_get(HANDLE_GRAPH, handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  graph_free(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
  ENTER(cuGraphGetNodes);
  struct graph *graph = handle_get(HANDLE_GRAPH, handle);
  if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
  size_t found = 0;
  for (struct node *node = graph->first; node; node = node->next, found++)
    if (nodes && found < *count) nodes[found] = node->handle;
  if (!nodes || found < *count) *count = found;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
  ENTER(cuGraphNodeGetType);
  static const CUgraphNodeType types[] = {
      [OPERATION_NOTHING] = CU_GRAPH_NODE_TYPE_EMPTY,
      [OPERATION_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
      [OPERATION_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
      [OPERATION_HOST] = CU_GRAPH_NODE_TYPE_HOST,
      [OPERATION_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      [OPERATION_WAIT_EVENT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      [OPERATION_MEMORY] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
      [OPERATION_SIGNAL] = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
      [OPERATION_WAIT_SEMAPHORE] = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
      [OPERATION_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
  };
  struct node *node = handle_get(HANDLE_NODE, handle);
  if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = types[node->operation->kind];
  return CUDA_SUCCESS;
}

/* ---- From the parameters of a node to an operation ---- */

CUresult memcpy_node_operation(const CUDA_MEMCPY3D *params, CUcontext context,
                               struct operation **out) {
  if (!handle_get(HANDLE_CONTEXT, context)) return CUDA_ERROR_INVALID_CONTEXT;
  return copy_operation(params, out);
}

CUresult memset_node_operation(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context,
                               struct operation **out) {
  if (!handle_get(HANDLE_CONTEXT, context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  size_t pitch = params->height > 1 ? params->pitch : 0;
  return fill_operation(params->dst, pitch, params->value, params->elementSize, params->width,
                        params->height, out);
}

CUresult kernel_node_operation(const CUDA_KERNEL_NODE_PARAMS_v1 *params, struct operation **out) {
  unsigned grid[3] = {params->gridDimX, params->gridDimY, params->gridDimZ};
  unsigned block[3] = {params->blockDimX, params->blockDimY, params->blockDimZ};
  return kernel_operation(params->func, grid, block, params->kernelParams, params->extra, out);
}

CUresult event_node_operation(enum operation_kind kind, CUevent handle, struct operation **out) {
  struct event *event = handle_get(HANDLE_EVENT, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  *out = operation_new(kind);
  (*out)->event.event = event;
  event->references++;
  return CUDA_SUCCESS;
}

CUresult memory_node_operation(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params,
                               struct operation **out) {
  if (!handle_get(HANDLE_CONTEXT, params->ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  return memory_operation_new(params->count, params->paramArray, out);
}

/* ---- Adding nodes ---- */

static CUresult add_node(CUgraphNode *out, CUgraph graph_handle, const CUgraphNode *after,
                         size_t after_count, CUresult made, struct operation *operation) {
  if (made != CUDA_SUCCESS) return made;
  struct graph *graph = handle_get(HANDLE_GRAPH, graph_handle);
  bool valid = graph && out && (after || !after_count);
  for (size_t i = 0; valid && i < after_count; i++) {
    struct node *node = handle_get(HANDLE_NODE, after[i]);
    valid = node && node->graph == graph;
  }
  if (!valid) {
    operation_free(operation);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = graph_add(graph, operation)->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                             size_t after_count) {
  ENTER(cuGraphAddEmptyNode);
  return add_node(node, graph, after, after_count, CUDA_SUCCESS, operation_new(OPERATION_NOTHING));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                              size_t after_count, const CUDA_MEMCPY3D *params, CUcontext context) {
  ENTER(cuGraphAddMemcpyNode);
  struct operation *operation = NULL;
  CUresult made = memcpy_node_operation(params, context, &operation);
  return add_node(node, graph, after, after_count, made, operation);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                              size_t after_count, const CUDA_MEMSET_NODE_PARAMS *params,
                              CUcontext context) {
  ENTER(cuGraphAddMemsetNode);
  struct operation *operation = NULL;
  CUresult made = memset_node_operation(params, context, &operation);
  return add_node(node, graph, after, after_count, made, operation);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                              size_t after_count, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  ENTER(cuGraphAddKernelNode);
  struct operation *operation = NULL;
  CUresult made = kernel_node_operation(params, &operation);
  return add_node(node, graph, after, after_count, made, operation);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                            size_t after_count, const CUDA_HOST_NODE_PARAMS *params) {
  ENTER(cuGraphAddHostNode);
  struct operation *operation = operation_new(OPERATION_HOST);
  operation->host.function = params->fn;
  operation->host.user = params->userData;
  return add_node(node, graph, after, after_count, CUDA_SUCCESS, operation);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                   size_t after_count, CUevent event) {
  ENTER(cuGraphAddEventRecordNode);
  struct operation *operation = NULL;
  CUresult made = event_node_operation(OPERATION_RECORD, event, &operation);
  return add_node(node, graph, after, after_count, made, operation);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                 size_t after_count, CUevent event) {
  ENTER(cuGraphAddEventWaitNode);
  struct operation *operation = NULL;
  CUresult made = event_node_operation(OPERATION_WAIT_EVENT, event, &operation);
  return add_node(node, graph, after, after_count, made, operation);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  size_t after_count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
  ENTER(cuGraphAddBatchMemOpNode);
  struct operation *operation = NULL;
  CUresult made = memory_node_operation(params, &operation);
  return add_node(node, graph, after, after_count, made, operation);
}
