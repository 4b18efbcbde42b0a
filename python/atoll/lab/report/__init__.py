"""What is made of records: tables, pictures, a page."""
