# frozen_string_literal: true

require "test_helper"
require "yaml"
require "support/matrix"

# The CI workflow tests the Rubies and backends that bin/test does.
class WorkflowTest < Minitest::Test
  JOBS = YAML.safe_load_file(File.expand_path("../../.github/workflows/ci.yml", __dir__)).fetch("jobs")
  MATRIX = JOBS.fetch("test").fetch("strategy").fetch("matrix")

  def test_rubies
    assert_empty [TestMatrix::FLOOR, *TestMatrix::NEWER] - MATRIX.fetch("ruby")
    assert_includes MATRIX.fetch("ruby"), "head"
  end

  def test_backends
    assert_equal TestMatrix::BACKENDS.sort, MATRIX.fetch("backend").sort
  end
end
