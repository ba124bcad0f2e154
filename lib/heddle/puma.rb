# frozen_string_literal: true

require_relative "core/required_gem"
Heddle::RequiredGem.load("puma", "heddle/puma", "puma, 6.4 or later")
%w[puma/configuration puma/server puma/launcher].each { |path| require path }
require "heddle"
require_relative "puma/compatibility"
require_relative "puma/settings"
require_relative "puma/task_pool"

module Heddle
  # Runs each request of Puma as a task: hundreds at once in one thread. `config/puma.rb`:
  #
  #   plugin :heddle
  #   threads 1, 1
  #
  # Puma's own pool of threads has one method that makes a thread, and one that ends them. {TaskPool} inherits from it
  # and makes tasks; the server, its reactor and its workers stay as they are. `Puma::ThreadPool.new` gives the subclass
  # to a server whose options ask for it.
  #
  # Needs Puma 6.4 or later.
  module PumaSupport
    # Extends Puma::ThreadPool.
    #
    # @api private
    module Substitution
      def new(name, options = {}, **rest, &block)
        return super unless equal?(::Puma::ThreadPool) && options[:heddle_threads]

        TaskPool.new(name, options, **rest, &block)
      end
    end
    private_constant :Substitution

    Compatibility.check
    ::Puma::DSL.include(Settings::OfDSL)
    ::Puma::ThreadPool.extend(Substitution)
  end
end
