# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attikos inside other frameworks, a module each; importing one imports that framework."""
