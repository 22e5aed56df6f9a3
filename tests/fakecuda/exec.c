/* SPDX-License-Identifier: MIT
 *
 * Executable graphs. A launch is one operation that carries clones of the parts, so a later change
 * of the parts leaves queued launches alone.
 */
#include <stdlib.h>

#include "fake.h"

struct part {
  CUgraphNode node; /* of the graph that it was made from */
  struct operation *operation;
  unsigned sorts; /* of a copy, when it was made: a bit for each side that is mapped memory */
};

struct exec {
  CUgraphExec handle;
  unsigned references; /* the handle and each queued launch */
  struct part *parts;
  size_t count;
  uint64_t launched, finished;
};

void exec_release(struct exec *exec) {
  if (--exec->references) return;
  for (size_t i = 0; i < exec->count; i++)
    operation_free(exec->parts[i].operation);
  free(exec->parts);
  free(exec);
}

bool exec_may_run(const struct exec *exec, const struct operation *operation) {
  return exec->finished == operation->graph.ticket;
}

void exec_finished(struct exec *exec) { exec->finished++; }

static unsigned is_mapped(const void *address) {
  const struct block *block = block_find((uintptr_t)address);
  return block && (block->kind == BLOCK_MAPPED || block->kind == BLOCK_ASYNC);
}

static unsigned sorts_of(const struct operation *operation) {
  if (operation->kind != OPERATION_COPY) return 0;
  return is_mapped(operation->copy.from.base) | is_mapped(operation->copy.to.base) << 1;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags);
  struct graph *graph = handle_get(HANDLE_GRAPH, handle);
  if (!graph || !out || flags & ~15ull) return CUDA_ERROR_INVALID_VALUE;
  struct exec *exec = calloc(1, sizeof *exec);
  if (!exec) fake_abort("out of memory");
  for (struct node *node = graph->first; node; node = node->next)
    exec->count++;
  exec->parts = calloc(exec->count + 1, sizeof *exec->parts);
  if (!exec->parts) fake_abort("out of memory");
  size_t i = 0;
  for (struct node *node = graph->first; node; node = node->next, i++)
    exec->parts[i] =
        (struct part){node->handle, operation_clone(node->operation), sorts_of(node->operation)};
  exec->references = 1;
  exec->handle = handle_new(HANDLE_EXEC, exec);
  *out = exec->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  ENTER(cuGraphExecDestroy);
  struct exec *exec = handle_get(HANDLE_EXEC, handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  handle_drop(handle);
  exec_release(exec);
  return CUDA_SUCCESS;
}

/* A graph may outlive the memory that it names: launching it then is a misuse. */
static CUresult check_ranges(const struct operation *operation) {
  for (unsigned i = 0; i < operation->use_count; i++) {
    CUresult result = block_check(operation->uses[i].address, 1, true, NULL);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

static struct operation *clone_for_launch(const struct exec *exec) {
  struct operation *first = NULL;
  struct operation **link = &first;
  for (size_t i = 0; i < exec->count; i++) {
    struct operation *clone = operation_clone(exec->parts[i].operation);
    if (clone->kind == OPERATION_RECORD)
      clone->event.number = event_record_number(clone->event.event);
    if (clone->kind == OPERATION_WAIT_EVENT)
      clone->event.number = atomic_load(&clone->event.event->state->recorded);
    *link = clone;
    link = &clone->next;
  }
  return first;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  ENTER(cuGraphLaunch);
  struct exec *exec = handle_get(HANDLE_EXEC, handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  struct stream *stream;
  CUresult result = stream_find(stream_handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++)
    result = check_ranges(exec->parts[i].operation);
  if (result != CUDA_SUCCESS) return result;
  struct operation *operation = operation_new(OPERATION_GRAPH);
  operation->graph.exec = exec;
  operation->graph.ticket = exec->launched++;
  operation->graph.first = clone_for_launch(exec);
  exec->references++;
  return stream_queue(stream, operation);
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  ENTER(cuGraphUpload);
  struct stream *stream;
  if (!handle_get(HANDLE_EXEC, handle)) return CUDA_ERROR_INVALID_VALUE;
  return stream_find(stream_handle, &stream);
}

/* ---- Changing the parts: later launches get the new parameters ---- */

/* A copy goes on between memory of the sorts that it was made for. */
static CUresult replace(struct part *part, struct operation *operation) {
  if (part->operation->kind != operation->kind || part->sorts != sorts_of(operation)) {
    operation_free(operation);
    return CUDA_ERROR_INVALID_VALUE;
  }
  operation_free(part->operation);
  part->operation = operation;
  return CUDA_SUCCESS;
}

static CUresult set_params(CUgraphExec exec_handle, CUgraphNode node, CUresult made,
                           struct operation *operation) {
  if (made != CUDA_SUCCESS) return made;
  struct exec *exec = handle_get(HANDLE_EXEC, exec_handle);
  bool live = handle_get(HANDLE_NODE, node) != NULL;
  for (size_t i = 0; exec && live && i < exec->count; i++)
    if (exec->parts[i].node == node) return replace(&exec->parts[i], operation);
  operation_free(operation);
  return CUDA_ERROR_INVALID_VALUE;
}

/* Of one row only. */
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *params, CUcontext context) {
  ENTER(cuGraphExecMemcpyNodeSetParams);
  if (params->Height > 1 || params->Depth > 1) return CUDA_ERROR_INVALID_VALUE;
  struct operation *operation = NULL;
  CUresult made = memcpy_node_operation(params, context, &operation);
  return set_params(exec, node, made, operation);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
  ENTER(cuGraphExecMemsetNodeSetParams);
  struct operation *operation = NULL;
  CUresult made = memset_node_operation(params, context, &operation);
  return set_params(exec, node, made, operation);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  ENTER(cuGraphExecKernelNodeSetParams);
  struct operation *operation = NULL;
  CUresult made = kernel_node_operation(params, &operation);
  return set_params(exec, node, made, operation);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  ENTER(cuGraphExecEventRecordNodeSetEvent);
  struct operation *operation = NULL;
  CUresult made = event_node_operation(OPERATION_RECORD, event, &operation);
  return set_params(exec, node, made, operation);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  ENTER(cuGraphExecEventWaitNodeSetEvent);
  struct operation *operation = NULL;
  CUresult made = event_node_operation(OPERATION_WAIT_EVENT, event, &operation);
  return set_params(exec, node, made, operation);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
  ENTER(cuGraphExecBatchMemOpNodeSetParams);
  struct operation *operation = NULL;
  CUresult made = memory_node_operation(params, &operation);
  return set_params(exec, node, made, operation);
}

static CUgraphExecUpdateResult compare(const struct exec *exec, const struct graph *graph,
                                       CUgraphNode *different) {
  size_t i = 0;
  for (struct node *node = graph->first; node; node = node->next, i++) {
    if (different) *different = node->handle;
    if (i == exec->count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (exec->parts[i].operation->kind != node->operation->kind)
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  }
  if (different) *different = NULL;
  return i == exec->count ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                          : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
}

CUresult cuGraphExecUpdate(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *out) {
  ENTER(cuGraphExecUpdate);
  struct exec *exec = handle_get(HANDLE_EXEC, exec_handle);
  struct graph *graph = handle_get(HANDLE_GRAPH, graph_handle);
  if (!exec || !graph || !out) return CUDA_ERROR_INVALID_VALUE;
  *out = compare(exec, graph, error_node);
  if (*out != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  size_t i = 0;
  for (struct node *node = graph->first; node; node = node->next)
    replace(&exec->parts[i++], operation_clone(node->operation));
  return CUDA_SUCCESS;
}
