# frozen_string_literal: true

module Heddle
  module Rails
    # What in an application keeps tasks from running at the same time, each with what mends it.
    #
    # @api private
    class Checks
      # ActiveRecord's adapters of gems that wait in C, each of which a part of Heddle of its name makes give way.
      WAITING = %w[mysql2 sqlite3].freeze
      private_constant :WAITING

      # @param app [Rails::Application] initialized
      def initialize(app)
        @app = app
      end

      # @return [Array<String>]
      def lines = [isolation, rack_timeout, *databases].compact

      private

      def isolation
        level = ActiveSupport::IsolatedExecutionState.isolation_level
        return if level == :fiber

        "tasks of a thread share its database connection: remove " \
          "config.active_support.isolation_level = #{level.inspect}"
      end

      def rack_timeout
        return unless Object.const_defined?("Rack::Timeout")

        "rack-timeout raises in a thread, wherever it is, and with it in all tasks of the thread: use " \
          "config.heddle.deadline instead"
      end

      def databases
        return [] unless Object.const_defined?("ActiveRecord::Base")
        return ["tasks share a database connection before ActiveRecord 7.1: update it"] if too_old?

        configurations = ::ActiveRecord::Base.configurations.configs_for(env_name: ::Rails.env)
        [*configurations.filter_map { |configuration| small_pool(configuration) },
          *configurations.map(&:adapter).uniq.filter_map { |adapter| waiting(adapter) }]
      end

      def too_old? = ::ActiveRecord.version < Gem::Version.new("7.1")

      def small_pool(configuration)
        fibers = @app.config.heddle.fibers or return
        key = configuration.respond_to?(:max_connections) ? :max_connections : :pool
        size = configuration.public_send(key)
        return if size.nil? || size >= fibers

        "of #{fibers} tasks #{size} have a connection to #{configuration.name}, the others wait: write " \
          "#{key}: #{fibers} in config/database.yml"
      end

      def waiting(adapter)
        part = "heddle/#{adapter}"
        return if !WAITING.include?(adapter) || $LOADED_FEATURES.any? { |path| path.end_with?("/lib/#{part}.rb") }

        "a query of the gem #{adapter} stops all tasks of its thread: require \"#{part}\""
      end
    end
  end
end
