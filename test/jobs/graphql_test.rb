# frozen_string_literal: true

require "test_helper"
require "concurrent"
require "graphql"
require "heddle/executor"

# graphql's dataloader with what it loads on an executor, and on Heddle's loop.
class GraphqlTest < Minitest::Test
  mode :fiber

  EXECUTOR = Heddle::Executor.new(fibers: 50)
  ITEMS = 30

  # Each of the keys is a future.
  class Futures < GraphQL::Dataloader::Source
    def fetch(ids)
      ids.map { |id| Concurrent::Promises.future_on(EXECUTOR) { sleep(0.1) && "loaded #{id}" } }.map(&:value!)
    end
  end

  # Each of the sources waits.
  class Waits < GraphQL::Dataloader::Source
    def initialize(item)
      @item = item
    end

    def fetch(ids)
      sleep(0.1)
      ids.map { |id| "#{id} of #{@item}" }
    end
  end

  class Item < GraphQL::Schema::Object
    field :future, String
    field :wait, String

    def future = dataloader.with(Futures).load(object)

    def wait = dataloader.with(Waits, object).load("this")
  end

  class Query < GraphQL::Schema::Object
    field :items, [Item]

    def items = (1..ITEMS).to_a
  end

  class Schema < GraphQL::Schema
    query Query
    use GraphQL::Dataloader
  end

  def test_futures
    assert_within(1.5, at_least: 0.1) { assert_equal (1..ITEMS).map { |id| "loaded #{id}" }, ask(Schema, "future") }
    assert_within(1.5, at_least: 0.1) { Heddle.run { assert_equal ITEMS, ask(Schema, "future").size } }
  end

  # Its own way to wait at once. It asks older versions of Async for what they have not.
  def test_its_own_tasks_on_our_loop
    skip "graphql's tasks want Async 2.24 and Ruby 3.2" if RUBY_VERSION < "3.2"
    require "heddle/async"
    require "graphql/dataloader/async_dataloader"
    schema = Class.new(GraphQL::Schema) do
      query Query
      use GraphQL::Dataloader::AsyncDataloader
    end
    assert_within(1.5, at_least: 0.1) { assert_equal (1..ITEMS).map { |id| "this of #{id}" }, ask(schema, "wait") }
    assert_within(1.5, at_least: 0.1) { Heddle.run { assert_equal ITEMS, ask(schema, "wait").size } }
  end

  private

  def ask(schema, field)
    result = schema.execute("{ items { #{field} } }")
    assert_nil result["errors"]
    result["data"]["items"].map { |item| item[field] }
  end
end
